"""Inbound PUBLISH packets, gathered into runs of one shape."""

from dataclasses import dataclass, field
from typing import Final

from config import limits
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.aliases import InboundAliases
from protocols.mqtt.codec import check_flags
from protocols.mqtt.events import LonePublish, Place, PublishRun, PublishShape
from protocols.mqtt.handshake import check_response_topic
from protocols.mqtt.hot import encode_publish_tail, packet_ids_at, run_length
from protocols.mqtt.offer import Offer
from protocols.mqtt.properties import TOPIC_ALIAS, Properties, decode_properties, encode_properties
from protocols.mqtt.topic_filters import validate_topic_name
from protocols.mqtt.wire import decode_varint, text_of

_Key = tuple[int, bytes, bytes]

_ONE_BYTE_LENGTH_MAX: Final = 129  # bytes of a packet whose remaining length takes one byte, two bytes
_TWO_BYTE_LENGTH_MAX: Final = 16_386
_LONE_BYTES_MIN: Final = 4  # of a publish beside its topic: first byte, length, packet identifier
_HEADER_BYTES: Final = 3  # of a packet whose remaining length takes two
_EACH_BYTES_MIN: Final = 7  # of a publish of QoS 1: what may be looked at before its size is known
VARIED_MAX: Final = 8  # publishes of one size taken one by one before columns pay
_QOS_1: Final = c.PUBLISH << 4 | 2  # the first byte of such a publish
_NO_PREFIX: Final = b"\x00"  # begins no PUBLISH


def frame_at(data: bytes, position: int, end: int, packet_bytes_max: int) -> tuple[int, int]:
    """Return where the body of the packet at `position` starts and where it stops.

    A stop beyond `end` means that more bytes are needed, at least up to it. Raises ProtocolError 0x81 for a
    bad remaining length and 0x95 for a packet larger than `packet_bytes_max`.
    """
    body = position + 1
    shift = length = 0
    while body < end:
        byte = data[body]
        body += 1
        if byte < 0x80:
            if shift and not byte:
                raise ProtocolError(c.MALFORMED_PACKET, "remaining length not in its shortest form")
            stop = body + (length | byte << shift)
            if stop - position > packet_bytes_max:
                raise ProtocolError(c.PACKET_TOO_LARGE, f"packet larger than {packet_bytes_max} bytes")
            return body, stop
        length |= (byte & 0x7F) << shift
        shift += 7
        if shift > 21:
            raise ProtocolError(c.MALFORMED_PACKET, "remaining length longer than four bytes")
    return body, end + 1


@dataclass(eq=False, repr=False, slots=True)
class PublishDecoder:
    """Takes runs of PUBLISH packets out of a chunk and remembers the shapes it has seen.

    What stands before the packet identifier (`_prefix`) and between it and the payload (`_tail`) of the last
    publish is kept, so that its likes are recognised without being parsed.
    """

    _version: int
    _offer: Offer
    _aliases: InboundAliases = field(init=False)
    _shapes: dict[_Key, PublishShape] = field(default_factory=dict, init=False)
    by_topic: dict[bytes, tuple[PublishShape, bytes]] = field(default_factory=dict, init=False)
    """The shapes of QoS 1, each with its tail, by the topic as it comes, with its length."""
    _key: _Key = field(default=(0, b"", b""), init=False)
    _shape: PublishShape = field(default_factory=lambda: PublishShape(0x30, "", b""), init=False)
    _prefix: bytes = field(default=_NO_PREFIX, init=False)
    _at_qos_1: bool = field(default=False, init=False)
    _tail: bytes = field(default=b"", init=False)
    _topic: bytes = field(default=b"", init=False)  # with its length, as the last publish has it
    _between: bytes = field(default=b"", init=False)  # its properties, as it has them
    _two_byte_length_max: int = field(init=False)
    _payload_offset: int = field(default=0, init=False)
    _stride: int = field(default=0, init=False)
    _window: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._aliases = InboundAliases(self._offer.topic_alias_maximum)
        self._two_byte_length_max = min(_TWO_BYTE_LENGTH_MAX, self._offer.packet_bytes_max)

    def take(self, data: bytes, start: int, end: int) -> PublishRun | None:
        """Take the run of publishes that begins at `start`, None when its first packet is not complete.

        Raises ProtocolError when the first is illegal; one behind it ends the run and raises in its turn.
        """
        prefix = self._prefix
        if not (
            data.startswith(prefix, start)
            and start + self._stride <= end
            and (not self._tail or data.startswith(self._tail, start + len(prefix) + 2))
        ):
            run = self._take_varied(data, start, end)
            if run is not None:
                return run
            if not self._learn(data, start, end):
                return None
        shape = self._shape
        prefix = self._prefix
        stride = self._stride
        if start + 2 * stride <= end and data.startswith(prefix, start + stride):
            tail_offset = len(prefix) + 2
            count = run_length(data, start, end, prefix, self._tail, tail_offset, stride, self._window)
            self._window = count
        else:
            count = self._window = 1
        stop = start + count * stride
        if count < VARIED_MAX and stop < end and data[stop] == shape.first_byte:
            run = self._take_varied(data, start, end)
            if run is not None and run.count > count:
                return run
        id_offset = 0
        ids: list[int] = []
        if shape.qos:
            id_offset = len(prefix)
            ids = packet_ids_at(data, start + id_offset, count, stride)
        return PublishRun(shape, count, ids, None, data[start:stop], stride, id_offset, self._payload_offset)

    def take_single(self, data: bytes) -> LonePublish | None:
        """Take `data` as one publish, if it is exactly one of QoS 1 and like the last, but for the size of
        its payload, perhaps; else None.

        What a device that waits for each PUBACK sends, so nothing is looked at but what may differ.
        """
        if not self._at_qos_1 or (len(data) != self._stride and not self._resize(data)):
            return None
        prefix = self._prefix
        at = len(prefix)
        if not data.startswith(prefix) or (self._tail and not data.startswith(self._tail, at + 2)):
            return None
        if not (data[at] or data[at + 1]):  # the packet identifier is 0: `take` says what is wrong with that
            return None
        return self._shape, data, at, self._payload_offset

    def take_each(
        self, data: bytes, start: int, end: int, before: PublishShape, count_max: int
    ) -> tuple[list[PublishRun], int]:
        """Take the publishes of QoS 1 from `start`, behind one of shape `before`, each to another topic than
        the one before and to one that is known, at most `count_max`; gives also where they stop. The rest is
        for `take`.

        What one who commands many devices sends: nothing is alike but the topics from one round to the next.
        """
        runs: list[PublishRun] = []
        known, size_max = self.by_topic.get, self._two_byte_length_max
        while end - start >= _EACH_BYTES_MIN and len(runs) < count_max and data[start] == _QOS_1:
            size = data[start + 1]
            body = start + 2
            if size > 0x7F:
                high = data[body]
                if not 0 < high < 0x80:
                    break
                size += (high - 1) << 7
                body += 1
            stop = body + size
            at = body + 2 + (data[body] << 8 | data[body + 1])
            found = known(data[body:at])
            if found is None:
                break
            shape, tail = found
            payload = at + 2 + len(tail)
            if shape is before or payload > stop or stop > end or stop - start > size_max:
                break
            packet_id = data[at] << 8 | data[at + 1]
            if not packet_id or (tail and not data.startswith(tail, at + 2)):
                break
            wire = data[start:stop]
            runs.append(PublishRun(shape, 1, [packet_id], None, wire, len(wire), at - start, payload - start))
            before = shape
            start = stop
        return runs, start

    def _resize(self, data: bytes) -> bool:
        """Expect publishes like the last of QoS 1, but of the size of `data`, if it may be one of them."""
        size = len(data)
        topic = self._topic
        if size < len(topic) + _LONE_BYTES_MIN or data[0] != self._shape.first_byte:
            return False
        if size <= _ONE_BYTE_LENGTH_MAX:
            prefix = bytes((data[0], size - 2)) + topic
        elif size <= self._two_byte_length_max:
            prefix = bytes((data[0], size - 3 & 0x7F | 0x80, size - 3 >> 7)) + topic
        else:
            return False
        offset = len(prefix) + 2 + len(self._tail)
        if offset > size or not data.startswith(prefix):
            return False
        self._prefix = prefix
        self._payload_offset = offset
        self._stride = size
        return True

    def _take_varied(self, data: bytes, start: int, end: int) -> PublishRun | None:
        """Take the publishes from `start` that are like the last but for the size of their payload, until so
        many are of one size that they had better be taken by columns; None for none.
        """
        shape, topic, between = self._shape, self._topic, self._between
        first_byte, topic_bytes = shape.first_byte, len(topic)
        id_bytes = 2 if shape.qos else 0
        rest_bytes = topic_bytes + id_bytes + len(between)
        size_max = self._two_byte_length_max
        places: list[Place] = []
        position = start
        size_before = alike = 0
        while topic and position + _HEADER_BYTES <= end and data[position] == first_byte:
            size = data[position + 1]
            body = position + 2
            if size > 0x7F:
                high = data[body]
                if not 0 < high < 0x80:
                    break
                size += (high - 1) << 7
                body += 1
            stop = body + size
            at = body + topic_bytes
            if stop > end or stop - position > size_max or size < rest_bytes:
                break
            if not data.startswith(topic, body) or (between and not data.startswith(between, at + id_bytes)):
                break
            if size != size_before:
                size_before = size
                alike = 0
            elif (alike := alike + 1) == VARIED_MAX:
                self._learn(data, position, end)
                break
            places.append((at - start, body + rest_bytes - start, stop - start))
            position = stop
        if not places:
            return None
        wire = data[start:position]
        ids = [wire[at] << 8 | wire[at + 1] for at, _, _ in places] if id_bytes else []
        return PublishRun(shape, len(places), ids, None, wire, places=places)

    def _learn(self, data: bytes, start: int, end: int) -> bool:
        """Parse one publish into the remembered shape, prefix and tail; False when it is not complete."""
        body, stop = frame_at(data, start, end, self._offer.packet_bytes_max)
        if stop > end:
            return False
        first_byte = data[start]
        topic_start = body + 2
        if topic_start > stop:
            raise ProtocolError(c.MALFORMED_PACKET, "PUBLISH cut short")
        topic_end = topic_start + (data[body] << 8 | data[body + 1])
        tail_start = payload_start = topic_end + 2 if first_byte & 6 else topic_end
        properties = b""
        if self._version == c.MQTT_5:
            if tail_start >= stop:
                raise ProtocolError(c.MALFORMED_PACKET, "PUBLISH cut short")
            payload_start += 1
            if data[tail_start]:
                size, properties_start = decode_varint(data, tail_start)
                payload_start = properties_start + size
                properties = data[properties_start:payload_start]
        if payload_start > stop:
            raise ProtocolError(c.MALFORMED_PACKET, "PUBLISH cut short")
        key = (first_byte, data[topic_start:topic_end], properties)
        if key != self._key:
            self._shape = self._shape_of(key)
            self._key = key
        if first_byte & 6:
            self._prefix = data[start:topic_end]
            self._tail = data[tail_start:payload_start]
        else:
            self._prefix = data[start:payload_start]
            self._tail = b""
        self._between = data[tail_start:payload_start]
        self._at_qos_1 = first_byte & 6 == 2
        self._topic = data[body:topic_end]
        self._payload_offset = payload_start - start
        self._stride = stop - start
        return True

    def forget_shapes(self) -> None:
        """Let go of all shapes, and have them let go of their contexts, which may refer back."""
        for shape in self._shapes.values():
            shape.context = None
        self._shapes.clear()
        self.by_topic.clear()

    def _shape_of(self, key: _Key) -> PublishShape:
        first_byte, topic_bytes, properties = key
        if not topic_bytes:  # an alias stands for the topic, or this is an error, section 3.3.2.1
            alias = _alias_in(properties)
            if not alias:
                raise ProtocolError(c.PROTOCOL_ERROR, "topic name is empty")
            return self._shape_of((first_byte, self._aliases.topic(alias), properties))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._make(first_byte, topic_bytes, properties)
            if len(topic_bytes) + len(properties) <= limits.MQTT_SHAPE_BYTES_MAX:
                if len(self._shapes) >= limits.MQTT_SHAPES_PER_CONNECTION_MAX:
                    self.forget_shapes()
                self._shapes[key] = shape
                if first_byte == _QOS_1 and not shape.alias:
                    topic_field = len(topic_bytes).to_bytes(2, "big") + topic_bytes
                    self.by_topic[topic_field] = (shape, encode_publish_tail(self._version, properties))
        if shape.alias:
            self._aliases.note(shape.alias, topic_bytes)
        return shape

    def _make(self, first_byte: int, topic_bytes: bytes, block: bytes) -> PublishShape:
        check_flags(first_byte)
        topic = text_of(topic_bytes)
        properties = self._properties_of(block) if block else None
        validate_topic_name(topic)
        if first_byte >> 1 & 3 > self._offer.maximum_qos:  # [MQTT-3.2.2-11]
            raise ProtocolError(c.QOS_NOT_SUPPORTED, f"the maximum QoS is {self._offer.maximum_qos}")
        if first_byte & 1 and not self._offer.retain_available:  # [MQTT-3.2.2-14]
            raise ProtocolError(c.RETAIN_NOT_SUPPORTED, "retained messages are not available")
        if properties is None:
            return PublishShape(first_byte, topic, block)
        alias = properties.topic_alias or 0
        if alias:
            block = encode_properties(properties.copy(topic_alias=None), c.PUBLISH)
        is_text = properties.payload_format_indicator == 1
        return PublishShape(first_byte, topic, block, alias=alias, is_text=is_text)

    def _properties_of(self, block: bytes) -> Properties:
        """Return the properties of a PUBLISH, without what a client may not say although the property
        exists.
        """
        properties = decode_properties(block, c.PUBLISH)
        if properties.topic_alias is not None:
            self._aliases.check(properties.topic_alias)
        if properties.subscription_identifiers:
            raise ProtocolError(c.PROTOCOL_ERROR, "subscription identifier from a client")  # [MQTT-3.3.4-6]
        check_response_topic(properties)
        return properties


def _alias_in(block: bytes) -> int:
    """Return the topic alias in a property block; 0 if there is none."""
    if len(block) == 3 and block[0] == TOPIC_ALIAS:  # alone, as it is most often
        return block[1] << 8 | block[2]
    return decode_properties(block, c.PUBLISH).topic_alias or 0
