{ A known chain in a language whose compiler writes no call frame information, and whose functions leave the frame pointer
  alone: main, climb, framed, then as many rungs as asked for, then burn.
  Usage: ladder SECONDS DEPTH }
program ladder;

uses BaseUnix, Unix;

var
  rounds: qword;

function now_ns: qword;
var
  now: timeval;
begin
  fpgettimeofday(@now, nil);
  now_ns := qword(now.tv_sec) * 1000000000 + qword(now.tv_usec) * 1000;
end;

function burn(value: qword): qword;
var
  i: longint;
begin
  for i := 1 to 1000000 do
    value := (value * 6364136223846793005 + qword(i)) xor (value shr 7);
  burn := value;
end;

{ Takes the address of a variable, so that its caller has one on its stack. }
procedure add(var sum: qword; value: qword);
begin
  sum := sum + value;
end;

function rung(left: longint; value: qword): qword;
begin
  if left = 0 then
    rung := burn(value)
  else
    rung := rung(left - 1, value + 1);
  rung := rung xor qword(left);
end;

function framed(left: longint; value: qword): qword;
var
  sum: qword;
begin
  sum := value;
  add(sum, rung(left, value));
  framed := sum;
end;

function climb(depth: longint; value: qword): qword;
begin
  climb := framed(depth - 1, value) + 1;
end;

var
  seconds: double;
  depth, left, code: longint;
  line: string;
  deadline_ns, value: qword;

begin
  val(paramstr(1), seconds, code);
  val(paramstr(2), depth, code);
  writeln('{"ready":', fpgetpid, '}');
  flush(output);
  if fpgetenv('WORKLOAD_GATE') <> nil then
    readln(line);
  deadline_ns := now_ns + round(seconds * 1e9);
  value := 1;
  rounds := 0;
  while now_ns < deadline_ns do
  begin
    value := climb(depth, value);
    rounds := rounds + 1;
  end;
  write('{"pid":', fpgetpid, ',"cpu_ns":0,"rounds":', rounds, ',"tids":[', fpgetpid, '],"chain":["main"');
  write(',"P$LADDER_$$_CLIMB$LONGINT$QWORD$$QWORD","P$LADDER_$$_FRAMED$LONGINT$QWORD$$QWORD"');
  for left := 1 to depth do
    write(',"P$LADDER_$$_RUNG$LONGINT$QWORD$$QWORD"');
  writeln(',"P$LADDER_$$_BURN$QWORD$$QWORD"]}');
end.
