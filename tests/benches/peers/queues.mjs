// Queues that are often used between a table and AWS, with jobs that do nothing.
//
// The peers of B2: `node queues.mjs graphile-worker|pg-boss JOBS`, on the database CRONBOX_DB_DSN. Each runs with its own
// batching: graphile-worker a local queue, pg-boss fetches of 1,000. Prints one JSON line.

import { makeWorkerUtils, run } from 'graphile-worker';
import pg from 'pg';
import PgBoss from 'pg-boss';

const [peer, jobs] = [process.argv[2], Number(process.argv[3])];
const connectionString = process.env.CRONBOX_DB_DSN;

async function graphileWorker() {
  const utils = await makeWorkerUtils({ connectionString });
  await utils.migrate();
  const pool = new pg.Pool({ connectionString });
  await pool.query(
    "SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(SELECT ROW('nothing', json_build_object('n', n), NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec FROM generate_series(1, $1::int) AS n))",
    [jobs],
  );
  await pool.query('ANALYZE');
  let done = 0;
  const begun = performance.now();
  await new Promise(async (all, failed) => {
    const runner = await run({
      connectionString,
      concurrency: 24,
      maxPoolSize: 10,
      noHandleSignals: true,
      preset: {
        worker: {
          concurrentJobs: 24,
          maxPoolSize: 10,
          localQueue: { size: 500 },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
      taskList: {
        nothing: () => {
          done += 1;
          if (done === jobs) all(runner);
        },
      },
    }).catch(failed);
  });
  // graphile-worker writes the last completions in batches.
  while ((await pool.query('SELECT count(*)::int AS left FROM graphile_worker.jobs')).rows[0].left > 0) {
    await new Promise((next) => setTimeout(next, 5));
  }
  return performance.now() - begun;
}

async function pgBoss() {
  const boss = new PgBoss(connectionString);
  await boss.start();
  await boss.createQueue('nothing');
  for (let from = 0; from < jobs; from += 5000) {
    const some = Math.min(5000, jobs - from);
    await boss.insert(Array.from({ length: some }, (_, n) => ({ name: 'nothing', data: { n: from + n } })));
  }
  const pool = new pg.Pool({ connectionString });
  await pool.query('ANALYZE');
  const begun = performance.now();
  const worker = async () => {
    for (;;) {
      const some = await boss.fetch('nothing', { batchSize: 1000 });
      if (!some || some.length === 0) return;
      await boss.complete('nothing', some.map((job) => job.id));
    }
  };
  await Promise.all([worker(), worker()]);
  return performance.now() - begun;
}

const millis = await { 'graphile-worker': graphileWorker, 'pg-boss': pgBoss }[peer]();
console.log(JSON.stringify({ rows: jobs, secs: millis / 1000 }));
process.exit(0);
