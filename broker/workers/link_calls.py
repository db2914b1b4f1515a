"""What a worker may call at another one: parts, as `workers` and the application serve them, and their calls.

Their arguments and results are values of `link_values`; a test looks at how they are declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CALLS: Final[Mapping[str, frozenset[str]]] = {
    part: frozenset(calls.split())
    for part, calls in {
        "queues": "declare configure delete look purge pause resume view views names",
        "exchanges": "declare delete bind unbind",
        "own_exchanges": "declare delete bind unbind bindings take_all",
        "groups": "create ensure reset delete view views",
        "messages": "browse move copy redrive redrive_dead_letters remove cancel_scheduled",
        "streams": "status commit_offset",
        "epochs": "commit abort status producers views forget",
        "directory": "note note_all reserve release",
        "topics": "know begun",
        "retained": "find go_on end adopt",
        "shared": "take_all take_vhost take_ban take_users set_policy clear_policy",
        "listings": "sessions retained",
        "backups": "cut keep drop",
        "federation": "all wants_more",
        "quotas": "count views",
        "quota_exchange": "note",
        "workers": "met begun note_load catch_up",
        "node": "own_counters own_use own_connections own_connection_count close_own_connection",
        "figures": "all",
    }.items()
}
