"""Sphinx settings; `make docs` builds with warnings as errors, so a broken link fails."""

from echomesh._version import __version__

project = "echomesh"
author = "the echomesh authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = f"echomesh {__version__}"
html_show_sphinx = False
html_show_copyright = False
