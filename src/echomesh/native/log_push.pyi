from echomesh.native.log_ahead import Ahead

class Pushes(Ahead):
    """Takes the frame that was filled, and gets it on disk."""
