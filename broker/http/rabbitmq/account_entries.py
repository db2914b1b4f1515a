"""Accounts as RabbitMQ has them: users with tags, and permissions by virtual host beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, get_args

from pydantic import ValidationError

from broker.access import passwords
from broker.admin.users import told_of
from broker.http.problems import Problem
from broker.http.rabbitmq.limit_names import bounds_of, limits_of
from config.access_settings import PermissionSettings, Tag, TopicPermissionSettings, UserSettings
from queue_manager.errors import InvalidArgument

ALGORITHM: Final = "rabbit_password_hashing_sha256"
OWN_HASH: Final = "argon2id_hash"
"""The key of a hash that RabbitMQ does not know, in a file of definitions."""
RIGHTS: Final = ("configure", "write", "read")

TAGS: Final = get_args(Tag)

_EVERY: Final = "*"


def permission_in(user: str, vhost: str, granted: Iterable[PermissionSettings]) -> dict[str, str] | None:
    """Return the entry of what a user may do in a virtual host; None: it may not enter."""
    found = _of_vhost(vhost, granted)
    if found is None:
        return None
    return {"user": user, "vhost": vhost, **{right: getattr(found, right) for right in RIGHTS}}


def topic_permissions_in(
    user: str, vhost: str, granted: Iterable[PermissionSettings]
) -> list[dict[str, str]]:
    """Return the entries of the routing keys a user may use in a virtual host."""
    found = _of_vhost(vhost, granted)
    topics = () if found is None else found.topics
    return [{"user": user, "vhost": vhost, **topic.model_dump()} for topic in topics]


def _of_vhost(vhost: str, granted: Iterable[PermissionSettings]) -> PermissionSettings | None:
    by_vhost = {each.vhost: each for each in granted}
    return by_vhost.get(vhost) or by_vhost.get(_EVERY)


def with_permission(user: UserSettings, vhost: str, **changes: Any) -> UserSettings:
    """Return the user with another permission in a virtual host, which begins as the one for every virtual
    host; raises ValidationError.
    """
    by_vhost = {each.vhost: each for each in user.permissions}
    base = _of_vhost(vhost, user.permissions) or PermissionSettings()
    by_vhost[vhost] = PermissionSettings.model_validate({**dict(base), "vhost": vhost, **changes})
    return user.model_copy(update={"permissions": tuple(by_vhost.values())})


def without_permission(user: UserSettings, vhost: str) -> UserSettings:
    """Return the user without the permission that is for this virtual host."""
    left = tuple(each for each in user.permissions if each.vhost != vhost)
    return user.model_copy(update={"permissions": left})


def with_topic(user: UserSettings, vhost: str, entry: Mapping[str, Any]) -> UserSettings:
    """Return the user with the permission of an entry for the routing keys of an exchange; raises
    ValidationError.
    """
    wanted = TopicPermissionSettings.model_validate(
        {key: entry[key] for key in ("exchange", "write", "read") if key in entry}
    )
    found = _of_vhost(vhost, user.permissions)
    others = () if found is None else found.topics
    topics = (*(topic for topic in others if topic.exchange != wanted.exchange), wanted)
    return with_permission(user, vhost, topics=topics)


def without_topics(user: UserSettings, vhost: str, exchange: str | None) -> UserSettings:
    """Return the user without permissions for routing keys, of one exchange or of all."""
    found = _of_vhost(vhost, user.permissions)
    if found is None:
        return user
    topics = tuple(each for each in found.topics if exchange not in (None, each.exchange))
    return with_permission(user, vhost, topics=topics)


def tags_of(entry: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the tags of an entry: those that mean something here, and the others."""
    said = entry.get("tags") or []
    if not isinstance(said, str | list):
        raise Problem(400, "bad_request", "tags: a list, or a text with commas")
    tags = [tag.strip() for tag in said.split(",") if tag.strip()] if isinstance(said, str) else list(said)
    return [tag for tag in tags if tag in TAGS], [tag for tag in tags if tag not in TAGS]


def password_hash_of(entry: Mapping[str, Any]) -> str:
    """Return the hash of an entry as it is kept; "": there is none."""
    if entry.get(OWN_HASH):
        return str(entry[OWN_HASH])
    text = entry.get("password_hash") or ""
    algorithm = entry.get("hashing_algorithm") or ALGORITHM
    return passwords.kept_of_rabbitmq(str(text), str(algorithm)) if text else ""


def user_entry(user: UserSettings) -> dict[str, Any]:
    """Return the entry of a user for a file of definitions, with its hash."""
    own, of_rabbitmq = user.password or "", passwords.of_rabbitmq(user.password or "")
    told: dict[str, Any] = {"name": user.name, "tags": list(user.tags), "limits": limits_of(user)}
    if of_rabbitmq is not None:
        text, algorithm = of_rabbitmq
        return {**told, "password_hash": text, "hashing_algorithm": algorithm}
    # a RabbitMQ refuses a whole file for one hash that it does not know
    hidden = {"password_hash": "", "hashing_algorithm": ALGORITHM}
    return {**told, **hidden, **({OWN_HASH: own} if own else {})}


def users_of(document: Mapping[str, Any], vhosts: Collection[str]) -> tuple[list[UserSettings], list[str]]:
    """Return the users that a document has, with their permissions in these virtual hosts, and a line for
    each thing that is not taken.
    """
    users: dict[str, UserSettings] = {}
    lines: list[str] = []
    for kind, take in (("users", _take_user), ("permissions", _grant), ("topic_permissions", _grant_topic)):
        for entry in document.get(kind, []):
            name = str(entry.get("name" if kind == "users" else "user", "?"))
            where = "" if kind == "users" else f" in {entry.get('vhost', '?')}"
            try:
                if where and entry.get("vhost") not in vhosts:
                    raise InvalidArgument("there is no such virtual host")
                lines += [f"{kind}: {name}{where}: {line}" for line in take(users, name, entry)]
            except ValidationError as error:
                lines.append(f"{kind}: {name}{where}: {told_of(error)}")
            except (InvalidArgument, Problem) as error:
                lines.append(f"{kind}: {name}{where}: {error.reason}")
    return list(users.values()), lines


def _take_user(users: dict[str, UserSettings], name: str, entry: Mapping[str, Any]) -> list[str]:
    tags, others = tags_of(entry)
    bounds = bounds_of(entry.get("limits"))
    fields = {"name": name, "password": password_hash_of(entry) or None, "tags": tuple(tags), **bounds}
    users[name] = UserSettings.model_validate(fields)
    return [f"the tag {tag} means nothing here" for tag in others]


def _grant(users: dict[str, UserSettings], name: str, entry: Mapping[str, Any]) -> list[str]:
    rights = {right: entry.get(right, "") for right in RIGHTS}
    users[name] = with_permission(_in(users, name), entry["vhost"], **rights)
    return []


def _grant_topic(users: dict[str, UserSettings], name: str, entry: Mapping[str, Any]) -> list[str]:
    users[name] = with_topic(_in(users, name), entry["vhost"], entry)
    return []


def _in(users: dict[str, UserSettings], name: str) -> UserSettings:
    if name not in users:
        raise InvalidArgument("the user was not taken")
    return users[name]
