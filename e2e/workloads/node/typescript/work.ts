export enum Kind {
  Plain,
  Heavy,
}

export interface Task {
  readonly depth: number;
  readonly kind: Kind;
}

type Step = (sum: number, count: number) => number;

export class Pool {
  private readonly counts: Record<Kind, number> = {
    [Kind.Plain]: 100,
    [Kind.Heavy]: 20_000,
  };

  run(task: Task): number {
    const count: number = this.counts[task.kind];
    return each(count, rotate);
  }
}

function each(count: number, step: Step): number {
  let sum = 0;
  for (let i = 0; i < count; i++) {
    sum = step(sum, i);
  }
  return sum;
}

const rotate: Step = function (sum: number, count: number): number {
  let bits = sum ^ count;
  for (let i = 0; i < 8; i++) {
    bits = ((bits << 1) | (bits >>> 31)) + i;
  }
  return bits;
};
