"""The types of `Broker.admin` and of what its calls take and give."""

from broker.admin.admin import Admin
from broker.admin.admin_views import GroupView, MessageView, Page, Published, QueueView, State

__all__ = ["Admin", "GroupView", "MessageView", "Page", "Published", "QueueView", "State"]
