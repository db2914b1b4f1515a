"""Access is asked when a client begins something, not for each message: what is allowed lies in the plan."""

import asyncio

import pytest

from benchmarks.load.lockstep import LOADS
from benchmarks.load.target import Login, Target
from broker.access.login import Identity
from broker.access.passwords import hashed
from broker.access.rights import Rights
from broker.app import Broker
from config.access import AccessSettings, PermissionSettings, UserSettings, UsersSettings
from config.settings import AmqpListenerSettings, ListenersSettings, MqttListenerSettings, Settings
from config.users_file import save_users

BATCH = 20
STEPS = 40
NARROWED = PermissionSettings(configure="^bench-", write="^bench[-/]", read="^bench[-/]")
ASKED = {Identity: ("may", "check", "may_use_keys", "check_keys", "may_all_topics"), Rights: ("cover",)}


@pytest.fixture
async def guarded(tmp_path):
    """A broker in this process with one user who may do what the loads do."""
    path = tmp_path / "users.yaml"
    user = UserSettings(name="bench", password=hashed(b"pw"), permissions=(NARROWED,))
    save_users(path, UsersSettings(users=(user,)))
    listeners = ListenersSettings(mqtt=MqttListenerSettings(port=0), amqp=AmqpListenerSettings(port=0))
    access = AccessSettings(users_file=str(path), anonymous="never")
    settings = Settings(storage={"url": "memory:"}, listeners=listeners, access=access)
    async with Broker(settings) as broker:
        yield broker


@pytest.mark.parametrize("load", LOADS)
async def test_no_permission_is_looked_up_for_a_message(guarded, load, monkeypatch):
    calls = []
    for kind, names in ASKED.items():
        for name in names:
            monkeypatch.setattr(kind, name, _counted(calls, getattr(kind, name)))
    ports = guarded.ports
    target = Target("here", amqp_port=ports["amqp"], mqtt_port=ports["mqtt"], login=Login("bench", "pw"))

    def run():
        steps = LOADS[load](target, "counted", BATCH)
        steps.step()
        before = len(calls)
        for _ in range(STEPS):
            steps.step()
        after = len(calls)
        steps.close()
        return before, after

    before, after = await asyncio.to_thread(run)
    assert before > 0  # for what the clients began
    assert after == before


def _counted(calls, method):
    def call(*arguments):
        calls.append(method.__name__)
        return method(*arguments)

    return call
