from echomesh.native.log_journal import Journal

class Ahead(Journal):
    """What the leader may do before a commit."""

    @property
    def copied_ahead(self) -> int: ...
    def wait_for_care(self, timeout: float) -> bool: ...
