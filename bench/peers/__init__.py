"""Each library through its Python face, at its best reasonable settings; `make(run, role)` is one end."""
