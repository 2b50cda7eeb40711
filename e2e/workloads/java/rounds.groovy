// Closures, dynamic calls and classes made at run time, for some seconds: groovy rounds.groovy SECONDS.
long end = System.nanoTime() + 1_000_000_000L * Long.parseLong(args[0])
class Sums {
    def values = [:]
    def add(key, value) { values[key] = (values[key] ?: 0) + value }
}
def fibonacci
fibonacci = { number -> number < 2 ? number : fibonacci(number - 1) + fibonacci(number - 2) }
for (int round = 0; System.nanoTime() < end; round++) {
    def sums = new Sums()
    (1..2000).each { sums.add("key ${it % 97}".toString(), it * 2) }
    sums.values.collect { key, value -> "$key=$value" }.sort().join(',')
    fibonacci(15)
    new GroovyShell().evaluate("(1..50).collect { it * ${round} }.sum()")
}
