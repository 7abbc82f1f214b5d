class Maps:
    """Segments that the committing thread has mapped."""
