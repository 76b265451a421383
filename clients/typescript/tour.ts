// The tour of cronbox's README with the generated client: node dist/tour.js, with CRONBOX_URL, CRONBOX_KEY and CRONBOX_TEAM_ID.

import assert from 'node:assert/strict';
import { setTimeout } from 'node:timers/promises';

import { createClient } from './src/client/index.js';
import { archiveWorkflow, createWorkflow, deleteSchedule, fireSchedule, listRuns, listWorkflows, patchWorkflow } from './src/sdk.gen.js';
import type { RunView } from './src/types.gen.js';

function variable(name: string): string {
  const value = process.env[name];
  assert(value, `set ${name}`);
  return value;
}

const client = createClient({ baseUrl: variable('CRONBOX_URL'), headers: { 'X-API-Key': variable('CRONBOX_KEY') } });

/** The newest run with this trigger that has succeeded. */
async function succeeded(id: number, trigger: RunView['trigger']): Promise<RunView> {
  for (;;) {
    const { data } = await listRuns({ client, query: { workflow_id: id, trigger: [trigger], state: ['succeeded'], limit: 1 }, throwOnError: true });
    const [run] = data.items;
    if (run) return run;
    await setTimeout(500);
  }
}

const { data: workflow } = await createWorkflow({
  client,
  query: { wait: 20 },
  body: {
    team_id: Number(variable('CRONBOX_TEAM_ID')),
    name: `typescript ${Date.now()}`,
    cron_schedule: '* * * * *',
    action: { type: 'log', message: 'hello' },
  },
  throwOnError: true,
});
assert.equal(workflow.sync.status, 'synced');

// The schedule comes first: while a run of it has not ended, cronbox refuses another one, unless the overlap policy permits it.
const scheduled = await succeeded(workflow.id, 'schedule');
assert.equal(new Date(scheduled.scheduled_time ?? '').getUTCSeconds(), 0);
// A body that may be absent is absent.
const { data: fired } = await fireSchedule({ client, path: { id: workflow.id }, throwOnError: true });
const manual = await succeeded(workflow.id, 'manual');
assert.equal(manual.id, fired.run_id);

const { error } = await patchWorkflow({ client, path: { id: workflow.id }, body: { cron_schedule: '75 9 * * *' } });
assert.equal(error?.code, 'invalid_field');
assert.equal(error?.field, 'cron_schedule');

await deleteSchedule({ client, path: { id: workflow.id }, throwOnError: true });
await archiveWorkflow({ client, path: { id: workflow.id }, throwOnError: true });
const { data: page } = await listWorkflows({ client, query: { state: 'archived', limit: 200 }, throwOnError: true });
assert(page.items.some((item) => item.id === workflow.id && item.cron_schedule === null));
console.log('typescript: the tour is complete');
