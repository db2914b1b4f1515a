"""SUBSCRIBE: plain filters go to the subscription tree, `$queue/...` ones make consumers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.consumer_filters import NAMES, filters_of
from broker.mqtt.delivery import MqttConsumer
from broker.mqtt.stream_delivery import MqttStreamConsumer
from broker.mqtt.stream_options import AUTO_COMMIT_PROPERTIES, stream_options, subscriber
from broker.properties.single import single_values
from broker.pubsub import Subscription
from config import limits
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.events import SubscribeReceived
from protocols.mqtt.packets import SubscriptionRequest
from protocols.mqtt.topics import split_shared
from queue_manager import address
from queue_manager.errors import (
    InvalidAddress,
    InvalidArgument,
    LimitReached,
    QueueManagerError,
    QueueNotFound,
)
from queue_manager.patterns import MATCH_ALL
from queue_manager.streams.start import NAME as START_PROPERTY
from queue_manager.streams.stream import Stream

if TYPE_CHECKING:
    from broker.mqtt.frontend import MqttFrontend

GROUP_PROPERTY: Final = "consumer-group"
EXPLICIT: Final = "explicit"
PUBACK: Final = "puback"
_PROPERTIES: Final = frozenset(
    (
        GROUP_PROPERTY,
        "ack",
        "exclusive",
        "prefetch",
        "x-priority",
        START_PROPERTY,
        *AUTO_COMMIT_PROPERTIES,
        *NAMES,
    )
)


def subscribe(
    client: MqttFrontend,
    event: SubscribeReceived,
    request: SubscriptionRequest,
    after: list[Callable[[], None]],
) -> tuple[int, str]:
    """Make one subscription: the SUBACK reason code, and why it was refused ("" if it was not).

    What is to be sent behind the SUBACK is added to `after`.
    """
    try:
        share, topic_filter = split_shared(request.filter)
        if address.is_queue_topic(topic_filter):
            return _subscribe_queue(client, event, request, share, topic_filter), ""
        if topic_filter.startswith("$"):
            return c.TOPIC_FILTER_INVALID, "this version publishes nothing to topics that begin with $"
        if share and request.no_local:
            raise ProtocolError(c.PROTOCOL_ERROR, "no-local on a shared subscription")
        return _subscribe_plain(client, event, request, share, topic_filter, after), ""
    except ProtocolError as error:
        return error.code, error.reason
    except QueueNotFound as error:
        return c.NOT_AUTHORIZED, error.reason
    except InvalidAddress as error:
        return c.TOPIC_FILTER_INVALID, error.reason
    except LimitReached as error:
        return c.QUOTA_EXCEEDED, error.reason
    except QueueManagerError as error:
        return c.IMPLEMENTATION_SPECIFIC_ERROR, error.reason


def _subscribe_plain(
    client: MqttFrontend,
    event: SubscribeReceived,
    request: SubscriptionRequest,
    share: str,
    topic_filter: str,
    after: list[Callable[[], None]],
) -> int:
    for name, _ in event.user_properties:
        if name in _PROPERTIES:  # such as a selector: without it far too much would come
            raise InvalidArgument(f"user property {name} is for $queue/... topics only")
    subscription = Subscription(
        client,
        topic_filter,
        request.qos,
        no_local=request.no_local,
        retain_as_published=request.retain_as_published,
        identifier=event.subscription_identifier,
        share=share,
    )
    is_new = request.filter not in client.subscriptions
    client.hub.pubsub.subscribe(subscription)
    client.subscriptions[request.filter] = subscription
    if not share and (request.retain_handling == 0 or (request.retain_handling == 1 and is_new)):
        after.append(partial(_send_retained, client, subscription))
    return request.qos


def _send_retained(client: MqttFrontend, subscription: Subscription) -> None:
    now_ms = client.hub.clock.now_ms()
    for message in client.hub.pubsub.retained_for(subscription.filter):
        client.outbound.send_retained(message, subscription, now_ms)


def _subscribe_queue(
    client: MqttFrontend,
    event: SubscribeReceived,
    request: SubscriptionRequest,
    share: str,
    topic_filter: str,
) -> int:
    hub = client.hub
    manager = hub.shard.manager
    now_ms = hub.clock.now_ms()
    parsed = address.parse(topic_filter)
    if parsed.verb:
        raise InvalidAddress(f"{parsed.verb} is a control topic: there is nothing to subscribe to")
    options = single_values(event.user_properties, "user property", _PROPERTIES)
    is_stream = isinstance(manager.queues.get(parsed.name), Stream)
    group = options.get(GROUP_PROPERTY) or share or _own_group(client, is_stream=is_stream)
    explicit = _is_explicit(client, options, is_stream=is_stream)
    wanted = stream_options(options, now_ms)
    if wanted is not None and not is_stream:
        raise InvalidArgument(f"{wanted.given}: queue {parsed.name!r} is no stream")
    prefetch = _prefetch(options, client.pool.credit_max)
    priority = _priority(options)
    exclusive = _exclusive(options)
    filters = filters_of(options)
    queue = manager.find_or_create(parsed.name, client, now_ms)
    if request.no_local:
        raise InvalidArgument("no-local is not supported on queues: who publishes may consume, too")
    if explicit and request.qos == 0:
        raise InvalidArgument("explicit settling needs QoS 1 or 2")
    sink_class = MqttStreamConsumer if is_stream else MqttConsumer
    sink = sink_class(
        client, request.filter, request.qos, explicit=explicit, identifier=event.subscription_identifier
    )
    sink.consumer = subscriber(manager, queue, wanted)(
        queue,
        group,
        parsed.rest or MATCH_ALL,
        sink,
        consumer_id=client.client_id,
        credit_max=prefetch,
        no_ack=request.qos == 0,
        exclusive=exclusive,
        lease_ms=queue.policy.visibility_timeout_ms,
        pool=None if request.qos == 0 or explicit else client.pool,
        priority=priority,
        **filters.options(),
    )
    sink.consumer.paused = client.paused
    old = client.consumers.pop(request.filter, None)
    if old is not None:  # [MQTT-3.8.4-3]: the new subscription replaces it
        client.drop_consumer(old)
    client.consumers[request.filter] = sink
    return request.qos


def _own_group(client: MqttFrontend, *, is_stream: bool) -> str:
    """The group a client is by itself; a stream's reader without an identifier is in none."""
    if client.has_assigned_id and is_stream:
        return ""
    if client.has_assigned_id:
        raise InvalidArgument(
            "a consumer of a queue needs a name to come back to: give the client an identifier, or name a "
            f"group by $share/<group>/... or the user property {GROUP_PROPERTY}"
        )
    return client.own_group()


def _is_explicit(client: MqttFrontend, options: dict[str, str], *, is_stream: bool) -> bool:
    wanted = options.get("ack")
    if wanted not in (None, EXPLICIT, PUBACK):
        raise InvalidArgument(f"user property ack is {EXPLICIT!r} or {PUBACK!r}, not {wanted!r}")
    if wanted is not None:
        return wanted == EXPLICIT
    return client.connection.protocol_version == c.MQTT_5 and GROUP_PROPERTY in options and not is_stream


def _priority(options: dict[str, str]) -> int:
    text = options.get("x-priority", "0")
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or int(digits) > limits.CONSUMER_PRIORITY_MAX:
        raise InvalidArgument(f"user property x-priority is a whole number, not {text!r}")
    return int(text)


def _exclusive(options: dict[str, str]) -> bool:
    text = options.get("exclusive", "false")
    if text not in ("true", "false"):
        raise InvalidArgument(f"user property exclusive is 'true' or 'false', not {text!r}")
    return text == "true"


def _prefetch(options: dict[str, str], receive_maximum: int) -> int:
    text = options.get("prefetch")
    if text is None:
        return receive_maximum
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65_535:
        raise InvalidArgument(f"user property prefetch is 1 to 65535, not {text!r}")
    return min(int(text), receive_maximum)
