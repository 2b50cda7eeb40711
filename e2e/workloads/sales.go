// Two callers of a function in Go, as sales.cc.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

var total int64

//go:noinline
func add(price int64) int64 {
	total += price
	return price * 2
}

//go:noinline
func sellSmall(price int64) int64 {
	return add(price) + 1
}

//go:noinline
func sellLarge(price int64) int64 {
	return add(10*price) + 2
}

func main() {
	calls, _ := strconv.ParseInt(os.Args[1], 10, 64)
	pauseUs, _ := strconv.ParseInt(os.Args[2], 10, 64)
	var counts, sums [2]int64
	time.Sleep(500 * time.Millisecond)
	for call := int64(0); call < calls; call++ {
		price := call % 100
		if call%4 == 0 {
			sellLarge(price)
			counts[1]++
			sums[1] += 10 * price
		} else {
			sellSmall(price)
			counts[0]++
			sums[0] += price
		}
		if pauseUs > 0 && call%50 == 49 {
			time.Sleep(time.Duration(pauseUs) * time.Microsecond)
		}
	}
	fmt.Printf("sell_small %d %d\n", counts[0], sums[0])
	fmt.Printf("sell_large %d %d\n", counts[1], sums[1])
}
