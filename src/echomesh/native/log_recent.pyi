from echomesh.native.log_fill import Filling
from echomesh.native.log_record import Records
from echomesh.native.log_topic import Topic

def recent(log: Filling, topic: Topic, offset: int, max_bytes: int, max_records: int) -> Records | None: ...
