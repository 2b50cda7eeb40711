-- A query that recurses (a recursive common table expression) and computes, without touching a disk.
-- It takes far longer than anybody waits: whoever runs it ends it.
WITH RECURSIVE
  candidate(n) AS (VALUES(2) UNION ALL SELECT n + 1 FROM candidate WHERE n < 4000000)
SELECT count(*) FROM candidate AS a
WHERE NOT EXISTS (SELECT 1 FROM candidate AS b WHERE b.n * b.n <= a.n AND a.n % b.n = 0);
