from echomesh.native.log_journal import Journal

class Ahead(Journal):
    """What the leader may do before a commit."""

    @property
    def copied_ahead(self) -> int: ...
