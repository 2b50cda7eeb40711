// Builds trees of strings, sorts them with a closure, walks them by recursion. Usage: node tree.js SECONDS
function build(depth, seed) {
  return depth === 0 ? [String(seed)] : [...build(depth - 1, seed * 2), ...build(depth - 1, seed * 2 + 1)];
}
const deadline = Date.now() + 1000 * Number(process.argv[2]);
let length = 0;
while (Date.now() < deadline) {
  const leaves = build(8, 1).sort((a, b) => (a < b ? 1 : -1));
  length += JSON.stringify(JSON.parse(JSON.stringify(leaves))).replace(/1(\d)/g, "$1").length;
}
