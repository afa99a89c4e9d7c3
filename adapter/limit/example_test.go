package limit_test

import (
	"fmt"
	"time"

	"github.com/keytill/keytill/adapter/limit"
)

func ExampleLimiter() {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	limiter := limit.New(2, func() time.Time { return now })
	fmt.Println(limiter.Allow("192.0.2.1"), limiter.Allow("192.0.2.1"), limiter.Allow("192.0.2.1"))
	fmt.Println(limiter.Allow("198.51.100.7"))
	now = now.Add(time.Minute)
	fmt.Println(limiter.Allow("192.0.2.1"))
	// Output:
	// true true false
	// true
	// true
}
