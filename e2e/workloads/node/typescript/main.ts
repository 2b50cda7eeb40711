// Functions that call each other, until as many seconds have passed as the argument says. Types, which are in no script, move
// their lines.
import { type Task, Kind, Pool } from "./work.js";

declare const process: { argv: string[] };

interface Options {
  readonly seconds: number;
}

function options(): Options {
  const seconds = Number(process.argv[2]);
  return { seconds };
}

const descend = (pool: Pool, task: Task): number => {
  if (task.depth > 0) {
    const next: Task = { ...task, depth: task.depth - 1 };
    return descend(pool, next) + 1;
  }
  return pool.run(task);
};

export function repeat<Result extends number>(
  pool: Pool,
  kind: Kind,
): Result {
  const task: Task = { depth: 5, kind };
  return descend(pool, task) as Result;
}

const end = Date.now() + options().seconds * 1000;
const pool = new Pool();
let total = 0;
while (Date.now() < end) {
  total += repeat(pool, Kind.Heavy);
}
