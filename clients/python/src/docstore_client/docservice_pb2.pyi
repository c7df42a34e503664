from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
STATUS_ERROR: Status
STATUS_FOUND: Status
STATUS_MOVED: Status
STATUS_NOT_FOUND: Status
STATUS_UNAVAILABLE: Status
STATUS_UNSPECIFIED: Status

class BatchGetRequest(_message.Message):
    __slots__ = ["accept", "collection", "ids"]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    accept: int
    collection: str
    ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, collection: _Optional[str] = ..., ids: _Optional[_Iterable[bytes]] = ..., accept: _Optional[int] = ...) -> None: ...

class BatchGetResponse(_message.Message):
    __slots__ = ["answers", "left_out"]
    class Answer(_message.Message):
        __slots__ = ["document", "status", "stored"]
        DOCUMENT_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        STORED_FIELD_NUMBER: _ClassVar[int]
        document: bytes
        status: Status
        stored: bytes
        def __init__(self, status: _Optional[_Union[Status, str]] = ..., document: _Optional[bytes] = ..., stored: _Optional[bytes] = ...) -> None: ...
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[BatchGetResponse.Answer]
    left_out: int
    def __init__(self, answers: _Optional[_Iterable[_Union[BatchGetResponse.Answer, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class CollectionStats(_message.Message):
    __slots__ = ["entries_applied", "faults", "faults_not_listed", "gets_failed", "gets_found", "gets_not_found", "gets_unavailable", "index_bytes", "index_entries", "index_tables", "lag_bytes", "lag_milliseconds", "name", "position", "ready", "segment_bytes", "segment_deletes", "segment_documents", "segments"]
    ENTRIES_APPLIED_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    FAULTS_NOT_LISTED_FIELD_NUMBER: _ClassVar[int]
    GETS_FAILED_FIELD_NUMBER: _ClassVar[int]
    GETS_FOUND_FIELD_NUMBER: _ClassVar[int]
    GETS_NOT_FOUND_FIELD_NUMBER: _ClassVar[int]
    GETS_UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    INDEX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    INDEX_TABLES_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_DELETES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    entries_applied: int
    faults: _containers.RepeatedCompositeFieldContainer[Fault]
    faults_not_listed: int
    gets_failed: int
    gets_found: int
    gets_not_found: int
    gets_unavailable: int
    index_bytes: int
    index_entries: int
    index_tables: int
    lag_bytes: int
    lag_milliseconds: int
    name: str
    position: Position
    ready: bool
    segment_bytes: int
    segment_deletes: int
    segment_documents: int
    segments: int
    def __init__(self, name: _Optional[str] = ..., ready: bool = ..., position: _Optional[_Union[Position, _Mapping]] = ..., lag_bytes: _Optional[int] = ..., lag_milliseconds: _Optional[int] = ..., index_entries: _Optional[int] = ..., index_tables: _Optional[int] = ..., index_bytes: _Optional[int] = ..., segments: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., segment_documents: _Optional[int] = ..., segment_deletes: _Optional[int] = ..., entries_applied: _Optional[int] = ..., gets_found: _Optional[int] = ..., gets_not_found: _Optional[int] = ..., gets_unavailable: _Optional[int] = ..., gets_failed: _Optional[int] = ..., faults: _Optional[_Iterable[_Union[Fault, _Mapping]]] = ..., faults_not_listed: _Optional[int] = ...) -> None: ...

class DictionaryRequest(_message.Message):
    __slots__ = ["collection", "hash"]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    collection: str
    hash: bytes
    def __init__(self, collection: _Optional[str] = ..., hash: _Optional[bytes] = ...) -> None: ...

class DictionaryResponse(_message.Message):
    __slots__ = ["dictionary"]
    DICTIONARY_FIELD_NUMBER: _ClassVar[int]
    dictionary: bytes
    def __init__(self, dictionary: _Optional[bytes] = ...) -> None: ...

class Fault(_message.Message):
    __slots__ = ["offset", "path", "reason", "segment", "since_unix_milliseconds", "stops_tail"]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    STOPS_TAIL_FIELD_NUMBER: _ClassVar[int]
    offset: int
    path: str
    reason: str
    segment: int
    since_unix_milliseconds: int
    stops_tail: bool
    def __init__(self, segment: _Optional[int] = ..., offset: _Optional[int] = ..., path: _Optional[str] = ..., reason: _Optional[str] = ..., since_unix_milliseconds: _Optional[int] = ..., stops_tail: bool = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ["accept", "collection", "id"]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    accept: int
    collection: str
    id: bytes
    def __init__(self, collection: _Optional[str] = ..., id: _Optional[bytes] = ..., accept: _Optional[int] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ["document", "status", "stored"]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    document: bytes
    status: Status
    stored: bytes
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., document: _Optional[bytes] = ..., stored: _Optional[bytes] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ["block", "index", "queue_id", "segment"]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    block: int
    index: int
    queue_id: bytes
    segment: int
    def __init__(self, queue_id: _Optional[bytes] = ..., segment: _Optional[int] = ..., block: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ["accept", "after", "collection", "ids_only", "limit", "prefix"]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    IDS_ONLY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    accept: int
    after: bytes
    collection: str
    ids_only: bool
    limit: int
    prefix: bytes
    def __init__(self, collection: _Optional[str] = ..., prefix: _Optional[bytes] = ..., after: _Optional[bytes] = ..., limit: _Optional[int] = ..., accept: _Optional[int] = ..., ids_only: bool = ...) -> None: ...

class ScanResponse(_message.Message):
    __slots__ = ["entries", "next"]
    class Entry(_message.Message):
        __slots__ = ["document", "id", "status", "stored"]
        DOCUMENT_FIELD_NUMBER: _ClassVar[int]
        ID_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        STORED_FIELD_NUMBER: _ClassVar[int]
        document: bytes
        id: bytes
        status: Status
        stored: bytes
        def __init__(self, status: _Optional[_Union[Status, str]] = ..., document: _Optional[bytes] = ..., stored: _Optional[bytes] = ..., id: _Optional[bytes] = ...) -> None: ...
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[ScanResponse.Entry]
    next: bytes
    def __init__(self, entries: _Optional[_Iterable[_Union[ScanResponse.Entry, _Mapping]]] = ..., next: _Optional[bytes] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ["collection"]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    collection: str
    def __init__(self, collection: _Optional[str] = ...) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ["collections"]
    COLLECTIONS_FIELD_NUMBER: _ClassVar[int]
    collections: _containers.RepeatedCompositeFieldContainer[CollectionStats]
    def __init__(self, collections: _Optional[_Iterable[_Union[CollectionStats, _Mapping]]] = ...) -> None: ...

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
