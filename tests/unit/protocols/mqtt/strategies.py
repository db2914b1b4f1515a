"""Hypothesis strategies for MQTT packets."""

from typing import Any

from hypothesis import strategies as st

from protocols.mqtt import constants as c
from protocols.mqtt import packets as p
from protocols.mqtt.properties import (
    _BINARY,
    _BOOL,
    _PAIR,
    _TEXT,
    _U16,
    _U32,
    _VARINT,
    PROPERTIES,
    Properties,
)

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
levels = st.text(st.characters(exclude_characters="\0+#/$", exclude_categories=("Cs",)), max_size=5)
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.one_of(
    topics, topics.map(lambda topic: topic + "/#"), st.sampled_from(("#", "+", "+/a", "a/+/b"))
)
ids = st.integers(1, 65_535)
binaries = st.binary(max_size=12)

_VALUES: dict[object, st.SearchStrategy[Any]] = {
    _BOOL: st.integers(0, 1),
    _U16: st.integers(1, 65_535),
    _U32: st.integers(1, 2**32 - 1),
    _VARINT: st.integers(1, c.REMAINING_LENGTH_MAX),
    _TEXT: texts,
    _BINARY: binaries,
    _PAIR: st.tuples(texts, texts),
}


@st.composite
def properties(
    draw: st.DrawFn, packet_type: int, version: int = 5, leave_out: tuple[str, ...] = ()
) -> Properties:
    """Properties a packet type may carry; empty in 3.1.1."""
    found = Properties()
    if version != 5:
        return found
    for name, wire_type, kinds in PROPERTIES.values():
        if packet_type not in kinds or name in leave_out or not draw(st.booleans()):
            continue
        value = _VALUES[wire_type]
        if name in ("user_properties", "subscription_identifiers"):
            most = 1 if packet_type == c.SUBSCRIBE and name == "subscription_identifiers" else 3
            setattr(found, name, draw(st.lists(value, max_size=most)))
        elif name == "response_topic":
            found.response_topic = draw(topics)
        else:
            setattr(found, name, draw(value))
    return found


@st.composite
def connects(draw: st.DrawFn, version: int) -> p.Connect:
    will = None
    if draw(st.booleans()):
        will = p.Will(
            draw(topics),
            draw(binaries),
            draw(st.integers(0, 2)),
            draw(st.booleans()),
            draw(properties(c.WILL, version)),
        )
    username = draw(st.none() | texts)
    clean_start = draw(st.booleans())
    return p.Connect(
        version,
        draw(texts) if clean_start or version == 5 else draw(texts.filter(bool)),
        clean_start=clean_start,
        keep_alive_s=draw(st.integers(0, 65_535)),
        username=username,
        password=draw(st.none() | binaries) if username is not None or version == 5 else None,
        will=will,
        properties=draw(
            properties(c.CONNECT, version, leave_out=("authentication_method", "authentication_data"))
        ),
    )


@st.composite
def publishes(draw: st.DrawFn, version: int, leave_out: tuple[str, ...] = ()) -> p.Publish:
    qos = draw(st.integers(0, 2))
    return p.Publish(
        draw(topics),
        draw(binaries),
        qos=qos,
        retain=draw(st.booleans()),
        dup=bool(qos) and draw(st.booleans()),
        packet_id=draw(ids) if qos else 0,
        properties=draw(properties(c.PUBLISH, version, leave_out)),
    )


@st.composite
def subscribes(draw: st.DrawFn, version: int) -> p.Subscribe:
    requests = []
    for topic_filter in draw(st.lists(filters, min_size=1, max_size=4)):
        qos = draw(st.integers(0, 2))
        if version == 5:
            options = (draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 2)))
            requests.append(p.SubscriptionRequest(topic_filter, qos, *options))
        else:
            requests.append(p.SubscriptionRequest(topic_filter, qos))
    return p.Subscribe(draw(ids), requests, draw(properties(c.SUBSCRIBE, version)))


@st.composite
def answers(draw: st.DrawFn, version: int) -> p.PublishAnswer:
    kind = draw(st.sampled_from((p.PubAck, p.PubRec, p.PubRel, p.PubComp)))
    if version != 5:
        return kind(draw(ids))
    code = draw(st.sampled_from(sorted(c.REASON_CODES_BY_TYPE[kind.packet_type])))
    return kind(draw(ids), code, draw(properties(kind.packet_type)))


def packets(version: int) -> st.SearchStrategy[p.Packet]:
    """Any packet either side may send in `version`."""
    codes = st.lists(st.sampled_from((0, 1, 2, 0x80)), max_size=4)
    known: list[st.SearchStrategy[p.Packet]] = [
        connects(version),
        st.builds(p.ConnAck, st.booleans(), st.just(0), properties(c.CONNACK, version)),
        publishes(version),
        answers(version),
        subscribes(version),
        st.builds(p.SubAck, ids, codes, properties(c.SUBACK, version)),
        st.builds(
            p.Unsubscribe, ids, st.lists(filters, min_size=1, max_size=4), properties(c.UNSUBSCRIBE, version)
        ),
        st.builds(p.UnsubAck, ids, codes if version == 5 else st.just([]), properties(c.UNSUBACK, version)),
        st.just(p.PingReq()),
        st.just(p.PingResp()),
    ]
    if version != 5:
        return st.one_of(*known, st.just(p.Disconnect()))
    reasons = st.sampled_from(sorted(c.REASON_CODES_BY_TYPE[c.DISCONNECT]))
    known.append(st.builds(p.Disconnect, reasons, properties(c.DISCONNECT)))
    known.append(st.builds(p.Auth, st.sampled_from((0, 0x18, 0x19)), properties(c.AUTH)))
    return st.one_of(*known)
