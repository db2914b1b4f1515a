"""Every hard limit of the broker, by name, with its unit last.

Limits that users may set live in `config.settings`; what stands here bounds buffers, tables and waits
that no setting reaches, or is the ceiling (or default) of a setting.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# queues and messages
QUEUE_NAME_BYTES_MAX: Final = 255
GROUP_NAME_BYTES_MAX: Final = 255
VHOST_NAME_BYTES_MAX: Final = 128
VHOSTS_MAX: Final = 1_000
MESSAGE_BYTES_MAX: Final = 128 * MIB  # ceiling of limits.max_message_size
MESSAGE_BYTES_DEFAULT_MAX: Final = 10 * MIB
QUEUES_MAX: Final = 100_000
EXCHANGES_MAX: Final = 100_000
BINDINGS_MAX: Final = 1_000_000  # of all exchanges
BINDING_ARGUMENTS_BYTES_MAX: Final = 64 * KIB  # as they are stored
HASH_WEIGHT_MAX: Final = 1_000_000  # of a binding of a consistent-hash exchange
GROUPS_PER_QUEUE_MAX: Final = 1_000
CONSUMERS_PER_GROUP_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 65_535  # u16 in the active record; the counter saturates
CONSUMER_PRIORITY_MAX: Final = 1 << 31  # and as far below 0
PUBLISH_OPTION_BYTES_MAX: Final = 255  # deduplication and producer IDs
ROUTE_CACHE_ENTRIES_MAX: Final = 10_000

# AMQP 0.9.1
AMQP_FRAME_BYTES_MAX: Final = 131_072  # offered in connection.tune
AMQP_HANDSHAKE_FRAME_BYTES_MAX: Final = 16 * KIB  # until the client is let in; a token has to fit
AMQP_FRAME_BYTES_MIN: Final = 4_096  # the specification's smallest frame-max
AMQP_CHANNELS_MAX: Final = 2_047
AMQP_HEARTBEAT_S: Final = 60
AMQP_HANDSHAKE_TIMEOUT_S: Final = 10
AMQP_CLOSE_TIMEOUT_S: Final = 5
AMQP_REFUSAL_DELAY_S: Final = 3  # a refused login that is not told of it keeps its connection for so long
BLOCKED_NOTICE_MS: Final = 1_000  # publishers held back for longer are told (connection.blocked)
TRANSACTION_BYTES_MAX: Final = 256 * MIB  # held by AMQP transactions that are under way, all clients
TRANSACTION_STEP_BYTES: Final = 128  # what each operation of a transaction counts for, besides its bodies
AMQP_CONSUMERS_PER_CHANNEL_MAX: Final = 1_000
AMQP_SHAPES_PER_CONNECTION_MAX: Final = 1_024  # cached (method, properties) pairs of publishes
AMQP_ADDRESSES_PER_CONSUMER_MAX: Final = 2_048  # routing keys whose deliveries are kept half-encoded
AMQP_UNSEEN_SHAPES_MAX: Final = (
    8  # publishes in a row with properties of their own; what follows is not cached
)

# MQTT
MQTT_PACKET_BYTES_MAX: Final = 16 * MIB  # default of mqtt.max_packet_size
MQTT_PACKET_BYTES_MIN: Final = 1 * KIB  # what that may be set to
MQTT_PACKET_BYTES_CEILING: Final = 256 * MIB
MQTT_RECEIVE_MAXIMUM: Final = 65_535  # QoS 1 and 2 publishes a client may have unacknowledged
MQTT_KEEP_ALIVE_DEFAULT_S: Final = 0
MQTT_HANDSHAKE_TIMEOUT_S: Final = 10
MQTT_TOPIC_BYTES_MAX: Final = 65_535
MQTT_TOPIC_LEVELS_MAX: Final = 256  # mosquitto has 200
MQTT_TOPIC_ALIAS_MAXIMUM: Final = 1_024  # aliases a client may use
MQTT_TOPIC_ALIAS_BYTES_MAX: Final = 256 * KIB  # the topics they stand for, per connection
MQTT_TOPIC_ALIASES_SENT_MAX: Final = 256  # aliases we use with a client that allows so many
MQTT_SUBSCRIPTIONS_PER_SESSION_MAX: Final = 10_000
MQTT_SHAPES_PER_CONNECTION_MAX: Final = 1_024
MQTT_ADDRESSES_PER_CONSUMER_MAX: Final = 256  # topics of deliveries that are kept encoded

MQTT_SESSIONS_MAX: Final = 100_000  # that outlive their connection
MQTT_SESSION_INFLIGHT_MAX: Final = 1_000  # messages such a session is sent and has not acknowledged
SESSION_TRIM_SLACK_MESSAGES: Final = 256  # beyond an eighth of the bound, before the store is looked through
SESSION_TRIM_SLACK_BYTES: Final = 1 * MIB
SESSION_QUEUED_MESSAGES_MAX: Final = 1 << 40  # ceiling of mqtt.sessions.max_queued_messages
SESSION_PROGRESS_INTERVAL_MS: Final = 1_000  # what was acknowledged is written down so often
FILTER_LOG_ENTRY_MESSAGES_MAX: Final = 1_024  # of one commit that share a record
FILTER_LOG_ENTRY_BYTES_MAX: Final = 256 * KIB  # and their bodies; one larger message may pass it
FILTER_LOG_TAIL_BYTES_MAX: Final = 256 * KIB  # durable messages of a filter kept in memory for who is behind
FILTER_LOG_BLOCK_BYTES: Final = 512 * KIB  # read back from a filter's log at a time
FILTER_LOG_ROWS_PER_SCAN_MIN: Final = 8
FILTER_LOG_ROWS_PER_SCAN_MAX: Final = 512
FILTER_LOG_ROWS_PER_TRIM: Final = 64  # looked through at a time for what nobody needs
FILTER_LOG_READ_BYTES_MAX: Final = 32 * MIB  # read back from all logs of filters and kept for other readers
FILTER_LOG_BLOCKS_MAX: Final = 4_096  # such reads

BRIDGES_MAX: Final = 100  # to other MQTT brokers
BRIDGE_TOPICS_MAX: Final = 1_000  # each way, of one bridge
BRIDGE_KEEP_ALIVE_S: Final = 60
BRIDGE_SILENCE_S: Final = 90  # of another broker, before its connection counts as lost
BRIDGE_CONNECT_TIMEOUT_S: Final = 20
BRIDGE_RETRY_S_MIN: Final = 1
BRIDGE_RETRY_S_MAX: Final = 30

# claims and memory
DISPATCHED_PER_TURN_MAX: Final = 2_048  # messages handed out before others have their turn
DELIVERY_COST: Final = 16  # a delivery, however few messages it has, counts as so many more
REDELIVERY_COST: Final = 4  # messages handed out again count as so many each
RETURNED_PER_STEP_MAX: Final = 512  # claims put back in their places before others have their turn
CLAIMS_PER_CONSUMER_MAX: Final = 65_535  # unsettled messages of a consumer that set no prefetch
CLAIMED_BYTES_PER_CONSUMER_MAX: Final = 64 * MIB  # unsettled payload of one consumer; one message may pass it
NO_ACK_BURST_MAX: Final = 8_192  # messages handed to a no-ack consumer before others have their turn
LATE_CONSUMER_WAIT_MS_MAX: Final = 60_000  # who let a lease end leaves messages to others at most so long
LOG_ENTRY_MESSAGES_MAX: Final = 1_024  # messages whose metadata share one metadata-log entry
LOG_ENTRY_BYTES_MAX: Final = 1 * MIB
UNCOMMITTED_BYTES_MAX: Final = 32 * MIB  # publishers are held back while more waits for the store
STATE_FLUSH_INTERVAL_MS: Final = 20  # claims and acks of a busy group are written at most this often
SETTLEMENTS_PER_BUCKET_MAX: Final = 1_000  # records of newly settled messages beside those of a bucket
LOAD_MESSAGES_MAX: Final = 2_048  # messages read back from the store at a time for one group
LOAD_BYTES_MAX: Final = 16 * MIB
PATTERN_SCAN_MESSAGES_MAX: Final = 16_384  # messages one dispatch of a group may look at in vain
GROUP_REMOVALS_PER_QUEUE_MAX: Final = 100  # deleted or reset groups whose remains are still being taken away
BROWSED_PER_TURN_MAX: Final = 128  # of a page sent before others have their turn
LISTED_MESSAGES_MAX: Final = 1_000  # on one page of a listing
BROWSES_AT_ONCE_MAX: Final = 16  # pages that clients have asked for and that are being read
EXPIRY_WINDOW_MESSAGES: Final = 10_000  # next messages to expire by themselves, per queue, in memory
EXPIRY_STEP_MESSAGES: Final = 1_000  # given up by one group at a time
EXPIRY_RETRY_MS: Final = 5_000  # what no dead-letter queue took, and no group keeps, is offered again
EXPIRY_RETURNED_PER_MS: Final = 200  # of many claims that came back those that expire are given up together
EXPIRY_READ_INTERVAL_MS: Final = 1_000  # a group without consumers looks so often at what the store holds
DEAD_LETTER_NESTING_MAX: Final = 8  # queues whose limits push messages on to each other within one call
SCHEDULE_WINDOW_MESSAGES: Final = 10_000  # next scheduled messages of a queue whose keys are in memory
SCHEDULE_NEAR_MS: Final = 2_000  # payloads are read so long before they are due
SCHEDULE_STEP_MESSAGES: Final = 1_000  # appended before others have their turn
QUEUE_DESCRIPTION_BYTES_MAX: Final = 1_000
PRIORITY_MAX: Final = 31  # each priority of a queue has a log of its own
PRIORITY_ASKED_MAX: Final = 255  # by x-max-priority, as RabbitMQ has it; the queue gets PRIORITY_MAX at most
DEDUPLICATION_IDS_MAX: Final = 250_000  # remembered for one queue
DEDUPLICATION_STEP_IDS: Final = 2_000  # forgotten before others have their turn
DEDUPLICATION_WINDOW_MS_MAX: Final = 7 * 86_400_000
PRODUCERS_PER_QUEUE_MAX: Final = 10_000  # that number their publishes
PRODUCER_IDLE_MS_MIN: Final = 86_400_000  # before a new one may take the place of one
PLACED_MESSAGES_PER_GROUP_MAX: Final = 10_000  # taken for who has no credit; then no more is taken
PLACED_BYTES_PER_GROUP_MAX: Final = 64 * MIB  # their payload; one step may pass it
PLACED_STEP_MESSAGES_MAX: Final = 2_048
MESSAGE_GROUPS_BOUND_MAX: Final = 100_000  # keys bound in one group; beyond only as many as have messages
MESSAGE_GROUP_KEY_BYTES_MAX: Final = 255  # longer keys are told apart by their SHA-256
STAGED_RECORD_ROWS_MAX: Final = 1_024  # staged rows in one record
STAGED_RECORD_BYTES_MAX: Final = 128 * KIB  # and their bytes; one larger row may pass it
STAGED_BYTES_PER_QUEUE_MAX: Final = 16 * 1024 * MIB  # staged and not committed, or not yet in the log
STAGED_ATTEMPTS_PER_QUEUE_MAX: Final = 100_000
STAGED_LIFETIME_MS: Final = 24 * 3_600_000  # what nobody commits goes so long after its last row came
STAGE_PRODUCERS_PER_QUEUE_MAX: Final = 100_000
STAGE_PRODUCER_LIFETIME_MS: Final = 90 * 86_400_000  # a producer is remembered so long after its last epoch
STAGE_PARTS_PER_EPOCH_MAX: Final = 65_535  # u16 in the epoch's record
STAGE_READ_RECORDS: Final = 16  # staged records read ahead
STAGE_STEP_RECORDS: Final = 2  # staged records moved or dropped before others have their turn
STAGE_CHECK_INTERVAL_MS: Final = 60_000  # how late lifetimes may be noticed
STAGE_CONTROL_BYTES_MAX: Final = 4 * MIB  # the body of a commit
LOADED_LOW_WATER: Final = 512  # a group reads ahead when fewer loaded messages wait
EPHEMERAL_BYTES_PER_QUEUE_MAX: Final = 256 * MIB
EPHEMERAL_BYTES_MAX: Final = 1_024 * MIB  # of all queues in memory
EPHEMERAL_COUNT_INTERVAL_MS: Final = 100  # while that is used up their bytes are summed up so often
DELAYED_MESSAGES_PER_GROUP_MAX: Final = (
    1_000_000  # waiting for their next attempt; then nothing new is claimed
)
DELAYED_BYTES_PER_GROUP_MAX: Final = 16 * MIB  # their payload kept in memory; the rest is read back when due
REDRIVEN_MESSAGES_PER_CALL_MAX: Final = 100_000  # one redrive; the next call takes the next ones
MOVED_MESSAGES_PER_CALL_MAX: Final = 100_000  # moved or copied from queue to queue in one call
REDRIVE_HELD_MESSAGES_MAX: Final = 10_000  # dead letters that could not go back, held until the redrive ends
REDRIVE_STEP_MESSAGES_MAX: Final = 256  # redriven between two looks at everything else

# configuration (ceilings of settings)
RETRY_MULTIPLIER_MAX: Final = 1_000
DURATION_MS_MAX: Final = 3_650 * 86_400_000  # ten years; fits the u32 seconds of the queue record
SIZE_BYTES_MAX: Final = 1 << 40  # ceiling of every size setting
QUEUE_DEPTH_MESSAGES_MAX: Final = 1 << 40  # ceiling of limits.max_depth
QUEUE_TOPICS_MAX: Final = 1_000  # topic bindings one queue may name in the file
CONFIG_FILE_BYTES_MAX: Final = 64 * MIB
CONFIG_VALUES_MAX: Final = 2_000_000  # values in one file, aliases followed, so that none explode
CONFIG_DEPTH_MAX: Final = 32  # nesting in one file

# storage
ENVELOPE_TEMPLATES_MAX: Final = 1_024  # decoded envelope suffixes kept for messages published alike
MQTT_CONNECT_BYTES_MAX: Final = 1 * MIB  # remaining length of CONNECT: a peer nobody has let in yet
MQTT_USER_PROPERTIES_MAX: Final = 1_024  # pairs in one packet: small pairs cost far more memory than bytes
MQTT_SHAPE_BYTES_MAX: Final = 2_048  # topic + properties of a publish shape that is worth keeping
ATTEMPTS_KEPT_MAX: Final = 32  # newest attempts kept in a message's history
ATTEMPTS_LOGS_PER_GROUP_MAX: Final = 10_000  # histories kept in memory
PURGED_MESSAGES_PER_SWEEP_MAX: Final = 20_000  # done messages purged in one commit, but for one record more
SWEEP_INTERVAL_MS: Final = 500
TAIL_BYTES_PER_QUEUE_MIN: Final = 1 * MIB  # memory any one queue's newest messages may take
AMQP_TABLE_DEPTH_MAX: Final = 32  # tables and arrays inside each other: the decoder recurses
AMQP_SHAPE_BYTES_MAX: Final = (
    1_024  # larger (method, properties) pairs are not cached, so a cache stays <= ~1 MiB
)
LOG_INDEX_ENTRIES_MAX: Final = 8_192  # newest metadata-log entries whose place is kept in memory, per queue
AMQP_ASSEMBLY_BYTES_MAX: Final = 2 * MESSAGE_BYTES_MAX  # announced by bodies in many frames, per connection
UNFINISHED_BYTES_MAX: Final = 128 * MIB  # announced by large messages that have come in part, all connections
UNFINISHED_BYTES_FREE: Final = 256 * KIB  # so much of a connection does not count
UNFINISHED_TIMEOUT_S: Final = 60  # a message may take so long to come, while others wait for room
STORE_OPEN_TIMEOUT_S: Final = 30  # opening the database, replay of its write-ahead log included
HOLD_BEAT_INTERVAL_S: Final = 10  # a broker says so often that it has a database in an object store open
HOLD_TIMEOUT_S: Final = 25  # one that has not for so long is gone
HOLD_LOOK_INTERVAL_S: Final = 1  # between two looks of a start that waits
STORE_TAKE_OVER_TIMEOUT_S: Final = 30  # for the broker before, fenced, to let go of a local directory
DIRECTORY_LOCK_POLL_MS: Final = 50  # between two looks whether it has
STORE_CALL_TIMEOUT_S: Final = 20  # one read or write; the store itself goes on trying behind it
STORE_CLOSE_TIMEOUT_S: Final = 15
STORE_SCAN_ROWS_MAX: Final = 1_024  # rows taken over from SlateDB at a time: the event loop waits meanwhile
STORE_SCAN_BYTES: Final = 256 * KIB  # the same in bytes, guessed from the rows before
STORE_UNFLUSHED_BYTES_MAX: Final = 96 * MIB  # rows in memory that are in no table yet; writes wait beyond
STORE_TABLE_BYTES: Final = 16 * MIB  # a memtable is written out at this size
STORE_TABLES_LEVEL0_MAX: Final = 32  # tables waiting for compaction before writes are held back
STORE_BLOCK_CACHE_BYTES: Final = 32 * MIB
STORE_SWEEP_INTERVAL_S: Final = 5  # new tables and manifests of a local disk are synced so often
STORE_GARBAGE_INTERVAL_S: Final = 15
STORE_GARBAGE_AGE_MIN_S: Final = 30  # SlateDB deletes nothing younger; calls end in 20 s
STORE_COMPACTED_AGE_MIN_S: Final = 60  # tables replaced by a compaction stay so long, at least
STORE_CLOCK_STEP_S_MAX: Final = 5  # a step of the clock beyond it spoils that for one round
STORE_REMOTE_FLUSH_INTERVAL_MS: Final = 50  # commits to an object store start no closer together
JOURNAL_SEGMENT_BYTES: Final = 16 * MIB  # a file of the journal; larger only for a commit that is
JOURNAL_SEGMENTS_MIN: Final = 2  # so that a start leaves the newest commits readable
JOURNAL_SEGMENTS_MAX: Final = 8  # commits that SlateDB has not made durable wait in them; then writers wait
COMMIT_INLINE_BYTES_MAX: Final = (
    8 * MIB
)  # the payload of a larger commit is encoded and handed on in a thread
VALUE_PART_BYTES: Final = 1 * MIB  # a larger value is copied in parts, between which other threads run
JOURNAL_INLINE_BYTES_MAX: Final = 16 * KIB  # a larger commit is written by the journal's thread
JOURNAL_INLINE_SYNC_US_MAX: Final = 500  # so is any while the disk takes longer than that to sync
JOURNAL_PENDING_BYTES_MAX: Final = 8 * MIB  # confirmed and not handed to SlateDB; one commit may pass it
JOURNAL_APPLY_INTERVAL_MS: Final = 20  # commits are handed to SlateDB so long after the first of them, or
JOURNAL_APPLY_BYTES: Final = 1 * MIB  # when they have so many bytes
JOURNAL_APPLY_STEP_ROWS: Final = 384  # put into a batch before others have their turn
JOURNAL_APPLY_STEP_BYTES: Final = 512 * KIB
JOURNAL_FLUSH_INTERVAL_MS: Final = 200  # SlateDB's log is flushed and synced so long after rows came, or
JOURNAL_FLUSH_BYTES: Final = 8 * MIB  # when they have so many bytes
JOURNAL_REPLAY_BYTES: Final = 2 * MIB  # handed to SlateDB at a time at a start
JOURNAL_FILL_BYTES: Final = 1 * MIB  # zeros written at a time where a segment is made
BACKGROUND_DELETES_PER_COMMIT_MAX: Final = 20_000  # so that cleaning up never makes a commit long
STORE_READ_AHEAD_BYTES: Final = 256 * KIB  # fetched ahead by one scan
STORE_ROOM_BYTES_MIN: Final = 4 * MIB  # a disk with less free is full, if a write does not come to an end
STORE_ROOM_CHECK_INTERVAL_S: Final = 1
STORE_FILE_BYTES_MAX: Final = 80 * MIB  # no file of the store grows larger

REMOVAL_ROUNDS_PER_SWEEP_MAX: Final = 4  # then others have their turn
REMOVAL_ENTRIES_PER_STEP: Final = 16  # log entries or buckets looked through at a time
REMOVAL_ROWS_PER_STEP: Final = 200
REMOVAL_STAGED_ROWS_PER_STEP: Final = 4  # they are large
RECOVERY_ROWS_PER_SCAN: Final = 1_000  # read at a time at the start
RECOVERY_LOGS_AT_ONCE: Final = 64  # of filters whose last entries are read together
RECOVERY_BUCKETS_AT_ONCE: Final = 32  # of whose records are read together
RECOVERY_DONE_ROWS_PER_SCAN: Final = 50  # done and failed records are large
FAILED_ROWS_PER_SCAN: Final = 50  # of a redrive
LOAD_ENTRIES_PER_SCAN: Final = 16
# payload ranges with more foreign rows than this per wanted one are read one by one
LOAD_SPARSE_RATIO: Final = 4
LOAD_SPARSE_RATIO_SMALL: Final = 32  # where payloads have been small lately: a look-up costs as much as many
LOAD_SMALL_BYTES: Final = 1 * KIB

# connections
ROOM_CHECK_BYTES: Final = 64 * KIB  # how much is passed on before the transport is asked for its backlog
ANSWERS_BYTES_PER_FLUSH: Final = 64 * KIB  # deliveries collected before they are handed to the transport
AMQP_ADDED_HEADERS_BYTES_MAX: Final = 128  # frame, content header and all a delivery adds but the group's ID
EXTEND_MS_MAX: Final = 12 * 3_600_000  # longest lease a client may ask for
CONNECTIONS_MAX: Final = 50_000
REFUSAL_LOG_INTERVAL_MS: Final = 1_000  # one line about refused publishes per queue
REFUSAL_LOG_QUEUES_MAX: Final = 1_000  # queues it is remembered for
WRITE_BUFFER_BYTES_HIGH: Final = 1 * MIB  # beyond it a connection's consumers are paused
WRITE_STEP_BYTES: Final = 256 * KIB  # of large messages, joined at a time
WRITE_TURN_BYTES_MAX: Final = 1 * MIB  # of a connection's large messages, before others have their turn
SUBSCRIBER_BUFFER_BYTES_MAX: Final = 64 * MIB  # beyond it plain messages to a slow subscriber are dropped
SESSION_PENDING_MESSAGES_MAX: Final = 100_000  # QoS 1 and 2 messages waiting for a client's Receive Maximum
DEADLINE_CHECK_INTERVAL_MS: Final = 500
DRAIN_TIMEOUT_S: Final = 10  # SIGTERM: how long the last commit and goodbyes may take
AMQP_LATE_TAGS_MAX: Final = 10_000  # delivery tags per channel whose late settling is forgiven
RETAINED_MESSAGES_MAX: Final = 100_000
RETAINED_BYTES_MAX: Final = 256 * MIB
LOOP_WATCH_INTERVAL_MS: Final = 50  # the event loop shows a sign of life so often
LOOP_STALL_MS: Final = 20  # one that comes so late is counted
LOOP_STALL_LOG_MS: Final = 200  # and one that comes so late is logged, with what the loop did
LOOP_STALL_LOG_INTERVAL_MS: Final = 1_000  # one line for all stalls of this time
TROUBLE_LOG_INTERVAL_MS: Final = 10_000  # what keeps the store from working is told again so often
START_LOG_DELAY_MS: Final = 1_000  # a start that takes longer says what it is doing
START_LOG_INTERVAL_MS: Final = 5_000  # and again so often
TCP_KEEPALIVE_IDLE_S: Final = 60  # of silence before the kernel asks whether a peer is there
TCP_KEEPALIVE_INTERVAL_S: Final = 15  # between two such questions
TCP_KEEPALIVE_PROBES: Final = 4  # unanswered ones end the connection
PROXY_HEADER_TIMEOUT_S: Final = 5  # for a proxy to say where a connection comes from
LISTEN_BACKLOG: Final = 4_096
LISTEN_RETRY_MS: Final = 50  # between two tries to get a port that a broker is about to give back
LISTEN_TAKE_OVER_TIMEOUT_S: Final = 10  # how long it may take that broker
EVENTS_PER_TURN_MAX: Final = 64  # of one client acted on before others have their turn; a run counts as one
FLUSHES_PER_TURN_MAX: Final = 256  # connections written to before others have their turn
DEADLINES_PER_TURN_MAX: Final = 1_024  # connections asked for their deadlines before others have their turn
ACCEPTS_PER_TURN_MAX: Final = 64  # connections let in before who is in has its turn
ACCEPT_PAUSE_MS: Final = 1_000  # out of descriptors or memory: nobody is let in for so long
OPEN_FILES_MAX: Final = 1_048_576  # as high as the process raises its limit of open files
OPEN_FILES_MIN: Final = 48  # with a lower limit the broker does not start
STORE_OPEN_FILES_MAX: Final = 64  # kept free of connections, for what the store opens for a moment
MEMORY_RETURN_INTERVAL_S: Final = 60  # freed memory goes back to the system so often
GOODBYE_TIMEOUT_S: Final = 1.0  # how long clients may take to answer the close when the broker stops
STORE_RETRY_DELAY_MS_MIN: Final = (
    100  # a commit that failed for a reason that may pass is tried again so soon
)
STORE_RETRY_DELAY_MS_MAX: Final = 5_000
STORE_RETRY_MS_MAX: Final = 60_000  # then the broker stops
SELECTOR_TEXT_CHARS_MAX: Final = 4_096
SELECTOR_TOKENS_MAX: Final = 200  # an IN list counts one token for each item and comma
SELECTOR_NESTING_MAX: Final = 64  # parentheses, NOT and signs inside each other: building the test recurses
SELECTOR_CACHE_ENTRIES_MAX: Final = 512  # compiled selectors kept by text, in use or not
PROPERTY_FILTER_ENTRIES_MAX: Final = 16  # references in one property filter, filters in one combination
PROPERTY_FILTER_NESTING_MAX: Final = 8  # combinations of combinations
PREPARED_PUTS_MIN: Final = 256  # commits of so many records are prepared while another is being written
STREAM_CHUNK_BYTES: Final = 1 * MIB  # payload that a stream's retention lets go of at a time, and
STREAM_CHUNK_MESSAGES: Final = 8_192  # messages; less where the limit of the stream is small
STREAM_CHUNKS_PER_LIMIT: Final = 16  # so many chunks make up a stream's limit: it is held to a 16th
STREAM_CHUNKS_KEPT: Final = 16_384  # of a stream; beyond that chunks are made larger, not more
STREAM_BLOCK_BYTES: Final = 4 * MIB  # payload of a stream read back at a time, where its chunks are no larger
STREAM_READ_BYTES_MAX: Final = 32 * MIB  # read back from all streams and kept for other readers
STREAM_BLOCKS_MAX: Final = 256  # such reads of one stream
STREAM_IDLE_TAIL_BYTES: Final = 256 * KIB  # newest messages kept for readers to come when all have read them
STREAM_RETURNED_MESSAGES_MAX: Final = 2_048  # unsettled messages kept when a group's last consumer goes
STREAM_TRIM_STEP_MESSAGES: Final = 4_096  # let go of in one commit
STREAM_OFFSET_MAX: Final = (1 << 63) - 1
SELECTORS_PER_GROUP_MAX: Final = 1_000  # different filters of the consumers of one group
SELECTOR_SCAN_MESSAGES_MAX: Final = 16_384  # looked at by one dispatch of a group; the rest in the next turn
SELECTOR_SCAN_STEP_MESSAGES: Final = 256  # looked at before what was found is delivered
SELECTED_MESSAGES_MAX: Final = 1_024  # found for a filter, waiting for a consumer of it
SELECTED_BYTES_PER_GROUP_MAX: Final = 16 * MIB  # their payload, over all filters; one each may pass it
FILTER_FIELDS_KEPT_MAX: Final = 1_024  # kinds of messages whose decoded properties are kept for filters
FILTER_FIELDS_KEPT_BYTES_MAX: Final = 4 * MIB  # the same in bytes, as they were encoded
FILTER_VERDICTS_KEPT_MAX: Final = 1_024  # a filter's answers, by kind of message
FILTER_PROPERTIES_BYTES_MAX: Final = 256 * KIB  # beyond it filters see no properties of a message

# HTTP
HTTP_HEAD_BYTES_MAX: Final = 64 * KIB  # target and header of a request
HTTP_HEAD_TIMEOUT_S: Final = 20  # for a request's header to come
HTTP_KEEP_ALIVE_S: Final = 75  # a connection without a request is kept so long
HTTP_BODY_BYTES_MAX: Final = 4 * MIB  # of a call of administration; a message may have its queue's size
HTTP_PAGE_ITEMS_DEFAULT: Final = 100  # on one page of a listing
HTTP_PAGE_ITEMS_MAX: Final = 1_000
HTTP_SOCKET_MESSAGE_BYTES_MAX: Final = 64 * KIB  # a page says little
HTTP_SOCKET_MESSAGES_MAX: Final = 8
RABBITMQ_PAGE_ITEMS_MAX: Final = 500
RABBITMQ_PATTERN_CHARACTERS_MAX: Final = 256  # of a name to search for
RABBITMQ_GET_MESSAGES_MAX: Final = 1_000
RABBITMQ_DEFINITIONS_BYTES_MAX: Final = 32 * MIB
VIEWS_KEPT_MIN: Final = 500  # with fewer queues they are looked at anew whenever somebody asks
VIEWS_KEPT_S: Final = 1.0  # counts of all queues are told to many who ask
METRICS_GROUPS_QUEUES_MAX: Final = 200  # queues whose groups have series of their own in /metrics
HTTP_FORM_FIELDS_MAX: Final = 20
PREVIEW_BYTES: Final = 4 * KIB  # of a payload on a page
DRAWN_BINDINGS_MAX: Final = 60
TAIL_MESSAGES_MAX: Final = 200  # waiting for a page that follows topics
TAIL_BODY_BYTES: Final = 64 * KIB  # of a payload that is followed
TAILS_MAX: Final = 20
INSPECTION_PROBLEMS_MAX: Final = 100  # records that cannot be read, told one by one
LOG_LINES_PER_EVENT_S_MAX: Final = 50  # about the same event; what is more is counted
LOG_EVENTS_KEPT_MAX: Final = 1_000  # for which that is counted
READINESS_TIMEOUT_S: Final = 5
RATE_SAMPLES: Final = 3  # of all queues; rates are over as many
RATE_INTERVAL_S: Final = 4
RATE_SPAN_S_MAX: Final = 60  # an older sample tells nothing of now
LISTED_QUEUES_PER_STEP: Final = 128  # looked at before others have their turn
LISTED_CONNECTIONS_PER_STEP: Final = 128
LISTED_NAMES_PER_STEP: Final = 4_096  # compared
METRICS_QUEUES_MAX: Final = 1_000  # with series of their own in /metrics; the others are summed up
MQCORE_STORE_TIMEOUT_S: Final = 10  # then a publisher is told to try again
MQCORE_WAIT_MS_MAX: Final = 60_000  # longest wait for a message to come
MQCORE_BATCH_MESSAGES_MAX: Final = 1_000  # added, fetched or deleted by one request
MQCORE_BATCH_BYTES_MAX: Final = 16 * MIB  # the body of a batch
MQCORE_PLANS_MAX: Final = 10_000  # kinds of messages (queue and content type) whose envelope is kept
MQCORE_STATIONS_MAX: Final = 10_000  # groups that messages are fetched from
MQCORE_STATION_IDLE_S: Final = 60  # a group nobody fetches from is forgotten

# users, logins, permissions
USERS_FILE_BYTES_MAX: Final = 64 * MIB
USERS_MAX: Final = 100_000
USER_NAME_BYTES_MAX: Final = 255
PASSWORD_BYTES_MAX: Final = 16 * KIB  # a JSON web token may come as one
PASSWORD_HASH_KIB: Final = 19_456  # memory that trying one password takes, with two rounds as OWASP advises
PASSWORD_HASH_ROUNDS: Final = 2
PASSWORD_THREADS_MAX: Final = 2  # passwords looked at together
LOGINS_WAITING_MAX: Final = 2_000  # logins that are being looked at; any other is refused
LOGIN_WAIT_S_MAX: Final = 8.0  # a slowed login waits at most so long, within the handshake's time
LOGIN_DELAY_S_MIN: Final = 0.25
LOGIN_DELAY_S_MAX: Final = 30.0
LOGIN_DELAY_OF_USER_S_MAX: Final = 1.0
LOGIN_FAILURES_FREE: Final = 4  # failures before the next login waits
LOGIN_FAILURES_KEPT_MAX: Final = 20_000
LOGINS_KEPT_MAX: Final = 10_000  # passwords found right, so that coming back soon costs no hashing
LOGINS_KEPT_S: Final = 60.0
TOKEN_KEYS_MAX: Final = 64  # of one file or key set
TOKEN_KEYS_BYTES_MAX: Final = 1 * MIB
TOKEN_KEYS_TIMEOUT_S: Final = 5
TOKEN_KEYS_ASK_INTERVAL_S: Final = 10  # a URL is asked at most so often, whatever keys tokens name
TOKEN_PERMISSIONS_MAX: Final = 100
HOOK_REQUESTS_MAX: Final = 32  # at the service at a time
HOOK_ANSWER_BYTES_MAX: Final = 64 * KIB
HOOK_FAILURES_MAX: Final = 5  # in a row, then the service is left alone
HOOK_PAUSE_S: Final = 10
SCRAM_ITERATIONS: Final = 10_000  # RFC 7677 asks for 4,096 at least
SCRAM_ITERATIONS_MAX: Final = 10_000_000  # in a users file; the client has to compute them
SCRAM_MESSAGE_BYTES_MAX: Final = 4 * KIB
ADDRESSES_KEPT_MAX: Final = 20_000  # who connected lately
TLS_HANDSHAKE_TIMEOUT_S: Final = 10
TLS_SHUTDOWN_TIMEOUT_S: Final = 2
ACCESS_PATTERN_CHARACTERS_MAX: Final = 4_096
ACCESS_PATTERNS_KEPT_MAX: Final = 4_096  # compiled
ACCESS_DECISIONS_KEPT_MAX: Final = 4_096  # of one connection
ACCESS_REFUSAL_LINES_MAX: Final = 16  # told in the log for one connection and second
