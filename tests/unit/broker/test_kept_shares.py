"""What share groups with lasting sessions keep, and hand over to the session of a member."""

from types import SimpleNamespace

from broker.engine.client.sessions import SessionClient
from broker.engine.session_traffic import SubscriptionOptions
from broker.mqtt.sessions.shares import KeptShares
from broker.mqtt.topology.pubsub import PubSub
from broker.mqtt.topology.subscription import Subscription
from storage.envelope import EnvelopeTemplate
from storage.records import NEVER_S
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, load, open_shard, run

SHARE = "$share/g/a"
QOS_2 = SubscriptionOptions(2, False, False, 2, 0, b"")
TEMPLATE = EnvelopeTemplate("a", persistent=True)


class Member:
    """The connection of a member: it takes what its session and its group send, and acknowledges nothing."""

    has_room = True

    def __init__(self):
        self.packet_id = 0
        self.got = []

    def may_read(self, topic):
        return True

    def forward(self, run, subscription):
        self.got += run.payloads

    def room(self):
        return 100

    def take_packet_id(self):
        self.packet_id += 1
        return self.packet_id

    def deliver(self, deliveries):
        self.got += [delivery.merged.message.body for delivery in deliveries]


class Broker:
    """A shard with one session that lasts, a member of a share group."""

    def __init__(self):
        self.clock = FakeClock()
        self.store = MemoryStore()
        self._open()
        session = self.sessions.begin("dev", "", NEVER_S)
        self.sessions.subscribe(session, SHARE, QOS_2, is_logged=False)
        self.shares.join(session, SHARE, 2)
        self.settle()

    def _open(self):
        self.shard = open_shard(self.store, self.clock)
        self.sessions = SessionClient(self.shard)
        self.pubsub = PubSub("balanced")
        hub = SimpleNamespace(client=SimpleNamespace(sessions=self.sessions), clock=self.clock)
        self.shares = KeptShares(hub, self.pubsub)

    def attach(self):
        """Have the member's client be there; what it is sent."""
        session, member = self.sessions.find("dev"), Member()
        session.expect(NEVER_S)
        session.attach(member)
        self.pubsub.subscribe(Subscription(member, "a", 2, share="g", session=session))
        self.settle()
        return member

    def publish(self, body, qos):
        self.sessions.publish(self.sessions.logs, TEMPLATE, qos, False, None, [body])
        self.settle()

    def settle(self):
        """As the loops: dispatch, and write what is due."""
        while True:
            self.shard.manager.dispatch(self.clock.ms)
            is_due = self.shard.manager.commit_due_ms(self.clock.ms) == 0
            if not (is_due and run(self.shard.commit_once())) and not load(self.shard):
                return

    def crash(self):
        self.store = self.store.crash()
        self._open()


def test_qos_2_handed_over_to_the_session_of_a_member_is_not_given_by_the_group_again_after_a_crash():
    """No time has passed to write acknowledgements, and the group keeps what came before."""
    broker = Broker()
    member = broker.attach()
    broker.publish(b"tea", qos=1)
    broker.publish(b"milk", qos=2)
    assert member.got == [b"tea", b"milk"]
    broker.crash()
    assert sorted(broker.attach().got) == [b"milk", b"tea"]
