from echomesh.native.log_journal import Journal

class Pushes(Journal):
    """Takes the frame that was filled, and gets it on disk."""
