"""The durable log of topics: events with consecutive offsets, acknowledged when they are on disk.

In come events as they are encoded on the wire (`TopicLog.append`), from one process for each data directory;
out come records in offset order (`LogReader`), in any number of processes. `core` holds what the writer has
open, `journal` and `recovery` what survives a crash, `topic_reader` how records are found; docs/format-log.md
describes every file.
"""

from echomesh.log.options import LogOptions
from echomesh.log.reader import LogReader
from echomesh.log.recovery import Report
from echomesh.log.topic_reader import TopicReader
from echomesh.log.topiclog import AsyncTopicLog, TopicLog
from echomesh.native.log_record import Records

__all__ = ["AsyncTopicLog", "LogOptions", "LogReader", "Records", "Report", "TopicLog", "TopicReader"]
