// Many small jobs in the native code of Node and in what V8 generates, with pauses of
// as many milliseconds as the argument says: a process of a node that has room for it.
const zlib = require('zlib');
const crypto = require('crypto');

const pause = Number(process.argv[2] ?? 50);

const rows = [];
for (let id = 0; id < 500; id++) rows.push({ id, name: 'n' + id, values: [id, id * 2, id * 3] });

function jobs() {
  const text = JSON.stringify(rows);
  JSON.parse(text);
  zlib.gzipSync(text);
  crypto.createHash('sha256').update(text).digest('hex');
  crypto.pbkdf2Sync('a', 'b', 2000, 32, 'sha512');
  text.replace(/n(\d+)/g, 'm$1').split(',').sort();
  setTimeout(jobs, pause);
}
jobs();
