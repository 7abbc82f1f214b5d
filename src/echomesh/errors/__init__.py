"""Every error that echomesh raises.

EchomeshError
├── UsageError (ValueError)          the caller's input can't be used; the message says what can
│   ├── BadName                      a nukleus or file name that is not one plain path segment
│   ├── BadTopic                     a topic name, filter or topic's file name that breaks the rules
│   ├── BadEvent                     an event that breaks the CloudEvents standard
│   │   ├── BadEventEncoding         bytes, JSON or headers that hold no event
│   │   └── BadEventData             data that is not of its datacontenttype
│   ├── MessageTooLarge              a body over the limit of its ring, buffer or command
│   ├── BadOption                    an option of a Spark source or sink that can't be used
│   ├── BadPipeline                  a pipeline with a mistake in it, with file and line
│   ├── UnknownPipeline              no pipeline of this name
│   ├── LocalPath                    a path of this machine that a cluster can't see
│   ├── BadTable                     a path that holds no such table, or rows that no table can take
│   └── SchemaChanged                a column that a table has with another type
├── StorageError (OSError)           the file system refused
│   ├── StorageFull                  no room left (disk, /dev/shm)
│   └── FileGone                     a file that should be there is not
├── DamagedError                     bytes that are not what they should be
│   ├── RingDamaged                  a ring, broadcast or counters buffer with impossible values
│   ├── BadControlFile               a control file with a bad header or size
│   └── BadFrame                     a command, response or stream event that can't be decoded
├── ClosedError                      the thing was closed, or its process forked
│   └── Forked                       it belongs to the process that this one was forked from
├── BusyError                        somebody else holds what only one may hold
│   ├── OwnerAlive                   a live process has this name
│   └── PipelineBusy                 a pipeline that another process runs
├── PipelineFailed                   a pipeline that ended by an error
├── ViewKept (BufferError)           a handler kept a view of a ring beyond its call
├── Lapped                           a receiver was overtaken and lost messages
├── CountersFull                     no slot left in a counters buffer
├── CommandError                     a nukleus could not do a command
│   ├── CommandRefused               it answered ERROR
│   ├── CommandTimeout (TimeoutError) it did not answer in time
│   └── NukleusGone                  it is not running
├── StreamReset                      the peer gave the stream up
├── DataError                        participants, publishers and subscribers
│   ├── BadOptions (UsageError)      an option that can't be used
│   ├── BadPacket                    bytes that are no beacon or control message
│   ├── NoParticipant (ConnectionError) none could be found, started or reached
│   │   └── PortTaken (BusyError)    another program listens where it should
│   ├── InitFailed                   the participant refused: WrongVersion, WrongDomain, TopicRefused, NotAuthorised,
│   │                                TooManyEndpoints
│   ├── SlowSubscriber (TimeoutError) a message could not be given to some subscribers in time
│   ├── MessagesLost                 messages that will not come, by their numbers
│   ├── NothingCame (TimeoutError)   no message, subscriber or reply in time
│   ├── NotARequest (UsageError)     a reply to what was no request
│   ├── BadRecording (DamagedError)  a file that is no recording
│   └── MissingPackage (UsageError)  a package that only some commands need
├── LogError                         the topic log
│   ├── LogDamaged                   a file of the log whose header, size or content is wrong
│   ├── LogCorrupt                   records that can't be read any more, by flipped bits or lost bytes
│   ├── NotAnEvent                   a record that is whole, but whose bytes are no CloudEvent
│   ├── OffsetsLost                  offsets that hold no event any more
│   │   ├── OffsetGone               removed by retention
│   │   └── HoleError                given out before an unclean stop, and lost with it
│   ├── LogBehind                    an offset beyond the end, as when the directory was made anew
│   ├── UnknownTopic (KeyError)      no such topic in the log
│   ├── LogReadOnly                  appends are refused since the disk failed; reads go on
│   ├── DiskFull                     no room for the event; try again when there is
│   ├── LogBusy                      too many appends wait; await some of them
│   ├── LogLocked                    another process writes to the directory
│   ├── StaleWriter                  a staged epoch older than the writer's last one
│   ├── FencedWriter                 a run that a newer one has replaced
│   ├── StageMissing                 a commit that names a stage which is not there, or not whole
│   └── DataLoss                     events that a Spark query should read, and the log does not have
└── MeshError                        sessions and servers of the mesh
    ├── BadMessage                   bytes that are no message of the protocol
    │   └── FrameTooLarge            a message over the limit
    ├── ConnectionLost (ConnectionError) the connection broke, or could not be made
    ├── SessionEnded                 the session was closed
    ├── SessionBusy                  too many publishes are in flight; await some of them
    ├── TakenOver                    a newer session of the same client has the topics now
    ├── WrongEventLoop (RuntimeError) a session is used from another event loop
    ├── MeshTimeout (TimeoutError)   no answer in time
    ├── RequestFailed                the server refused, and one kind for each of the protocol's errors:
    │   ├── NoActiveSession, NotAuthorized, NoBridgeServer, InvalidUrl, InvalidClient, InvalidSeq,
    │   ├── InvalidBridge, BridgeNotActive, BridgeExists, UnknownBridge,
    │   ├── UnauthorizedPublish, UnauthorizedSubscribe
    │   └── RateLimited              more publishes a second than the client may make
    ├── LoginBusy                    too many passwords wait to be checked
    ├── BadAccessFile                an access file that can't be used
    ├── StateTooNew                  a state file of a newer version
    └── BadConfig                    a configuration that can't be used
"""

from echomesh.errors.data import (
    BadOptions,
    BadPacket,
    DataError,
    InitFailed,
    NoParticipant,
    NotAuthorised,
    PortTaken,
    TooManyEndpoints,
    TopicRefused,
    WrongDomain,
    WrongVersion,
)
from echomesh.errors.delivery import (
    BadRecording,
    Forked,
    MessagesLost,
    MissingPackage,
    NotARequest,
    NothingCame,
    SlowSubscriber,
)
from echomesh.errors.general import (
    BadControlFile,
    BadEvent,
    BadEventData,
    BadEventEncoding,
    BadFrame,
    BadName,
    BadTopic,
    BusyError,
    ClosedError,
    CommandError,
    CommandRefused,
    CommandTimeout,
    CountersFull,
    DamagedError,
    EchomeshError,
    FileGone,
    Lapped,
    MessageTooLarge,
    NukleusGone,
    OwnerAlive,
    RingDamaged,
    StorageError,
    StorageFull,
    StreamReset,
    UsageError,
    ViewKept,
)
from echomesh.errors.log import (
    DiskFull,
    FencedWriter,
    HoleError,
    LogBehind,
    LogBusy,
    LogCorrupt,
    LogDamaged,
    LogError,
    LogLocked,
    LogReadOnly,
    NotAnEvent,
    OffsetGone,
    OffsetsLost,
    StageMissing,
    StaleWriter,
    UnknownTopic,
)
from echomesh.errors.mesh import (
    BadAccessFile,
    BadConfig,
    BadMessage,
    BridgeExists,
    BridgeNotActive,
    ConnectionLost,
    FrameTooLarge,
    InvalidBridge,
    InvalidClient,
    InvalidSeq,
    InvalidUrl,
    LoginBusy,
    MeshError,
    MeshTimeout,
    NoActiveSession,
    NoBridgeServer,
    NotAuthorized,
    RateLimited,
    RequestFailed,
    SessionBusy,
    SessionEnded,
    StateTooNew,
    TakenOver,
    UnauthorizedPublish,
    UnauthorizedSubscribe,
    UnknownBridge,
    WrongEventLoop,
)
from echomesh.errors.pipelines import (
    BadPipeline,
    LocalPath,
    PipelineBusy,
    PipelineFailed,
    UnknownPipeline,
)
from echomesh.errors.spark import BadOption, BadTable, DataLoss, SchemaChanged

__all__ = [
    "BadAccessFile",
    "BadConfig",
    "BadControlFile",
    "BadEvent",
    "BadEventData",
    "BadEventEncoding",
    "BadFrame",
    "BadMessage",
    "BadName",
    "BadOption",
    "BadOptions",
    "BadPacket",
    "BadPipeline",
    "BadRecording",
    "BadTable",
    "BadTopic",
    "BridgeExists",
    "BridgeNotActive",
    "BusyError",
    "ClosedError",
    "CommandError",
    "CommandRefused",
    "CommandTimeout",
    "ConnectionLost",
    "CountersFull",
    "DamagedError",
    "DataError",
    "DataLoss",
    "DiskFull",
    "EchomeshError",
    "FencedWriter",
    "FileGone",
    "Forked",
    "FrameTooLarge",
    "HoleError",
    "InitFailed",
    "InvalidBridge",
    "InvalidClient",
    "InvalidSeq",
    "InvalidUrl",
    "Lapped",
    "LocalPath",
    "LogBehind",
    "LogBusy",
    "LogCorrupt",
    "LogDamaged",
    "LogError",
    "LogLocked",
    "LogReadOnly",
    "LoginBusy",
    "MeshError",
    "MeshTimeout",
    "MessageTooLarge",
    "MessagesLost",
    "MissingPackage",
    "NoActiveSession",
    "NoBridgeServer",
    "NoParticipant",
    "NotARequest",
    "NotAnEvent",
    "NotAuthorised",
    "NotAuthorized",
    "NothingCame",
    "NukleusGone",
    "OffsetGone",
    "OffsetsLost",
    "OwnerAlive",
    "PipelineBusy",
    "PipelineFailed",
    "PortTaken",
    "RateLimited",
    "RequestFailed",
    "RingDamaged",
    "SchemaChanged",
    "SessionBusy",
    "SessionEnded",
    "SlowSubscriber",
    "StageMissing",
    "StaleWriter",
    "StateTooNew",
    "StorageError",
    "StorageFull",
    "StreamReset",
    "TakenOver",
    "TooManyEndpoints",
    "TopicRefused",
    "UnauthorizedPublish",
    "UnauthorizedSubscribe",
    "UnknownBridge",
    "UnknownPipeline",
    "UnknownTopic",
    "UsageError",
    "ViewKept",
    "WrongDomain",
    "WrongEventLoop",
    "WrongVersion",
]
