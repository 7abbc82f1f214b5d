"""`python -m echomesh.data OPTIONS`: how the first process of a machine starts the participant."""

import json
import sys

from echomesh.data.config import DataOptions
from echomesh.data.serving import serve_detached

if __name__ == "__main__":
    sys.exit(serve_detached(DataOptions.of(json.loads(sys.argv[1]))))
