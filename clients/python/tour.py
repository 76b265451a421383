"""The tour of cronbox's README with the generated client. It reads CRONBOX_URL, CRONBOX_KEY and CRONBOX_TEAM_ID."""

import os
import time

from cronbox_client import AuthenticatedClient
from cronbox_client.api.runs import list_runs
from cronbox_client.api.schedules import delete_schedule, fire_schedule
from cronbox_client.api.workflows import archive_workflow, create_workflow, list_workflows, patch_workflow
from cronbox_client.models import (
    ListRunsStateItem,
    ListRunsTriggerItem,
    ListWorkflowsState,
    LogAction,
    LogType,
    Problem,
    ProblemCode,
    SyncStatus,
    WorkflowBody,
    WorkflowPatch,
)

client = AuthenticatedClient(
    base_url=os.environ["CRONBOX_URL"],
    token=os.environ["CRONBOX_KEY"],
    prefix="",
    auth_header_name="X-API-Key",
    timeout=30,
)


def succeeded(workflow_id, trigger):
    """The newest run with this trigger that has succeeded."""
    while True:
        page = list_runs.sync(
            client=client, workflow_id=workflow_id, trigger=[trigger], state=[ListRunsStateItem.SUCCEEDED], limit=1
        )
        if page.items:
            return page.items[0]
        time.sleep(0.5)


body = WorkflowBody(
    team_id=int(os.environ["CRONBOX_TEAM_ID"]),
    name=f"python {time.time_ns()}",
    cron_schedule="* * * * *",
    action=LogAction(type_=LogType.LOG, message="hello"),
)
workflow = create_workflow.sync(client=client, body=body, wait=20)
assert workflow.sync.status == SyncStatus.SYNCED, workflow

# The schedule comes first: while a run of it has not ended, cronbox refuses another one, unless the overlap policy permits it.
scheduled = succeeded(workflow.id, ListRunsTriggerItem.SCHEDULE)
assert scheduled.scheduled_time.second == 0, scheduled
# A body that may be absent is absent.
fired = fire_schedule.sync(workflow.id, client=client)
assert succeeded(workflow.id, ListRunsTriggerItem.MANUAL).id == fired.run_id

refused = patch_workflow.sync(workflow.id, client=client, body=WorkflowPatch(cron_schedule="75 9 * * *"))
assert isinstance(refused, Problem), refused
assert (refused.code, refused.field) == (ProblemCode.INVALID_FIELD, "cron_schedule"), refused

delete_schedule.sync_detailed(workflow.id, client=client)
archive_workflow.sync(workflow.id, client=client)
archived = list_workflows.sync(client=client, state=ListWorkflowsState.ARCHIVED, limit=200)
assert any(item.id == workflow.id and item.cron_schedule is None for item in archived.items)
print("python: the tour is complete")
