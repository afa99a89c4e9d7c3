package jobs_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keytill/keytill/internal/jobs"
)

func TestAnEraEndsWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by   time.Duration
		ends bool
	}{
		"an hour back":         {-time.Hour, true},
		"put right by seconds": {-30 * time.Second, false},
		"an hour ahead":        {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var off atomic.Int64
				era, end := jobs.Era(t.Context(), func() time.Time { return time.Now().Add(time.Duration(off.Load())) })
				defer end()
				time.Sleep(10 * time.Second)
				if era.Err() != nil {
					t.Fatal("it has ended while time went on")
				}
				off.Store(int64(c.by))
				time.Sleep(10 * time.Second)
				if ended := era.Err() != nil; ended != c.ends {
					t.Errorf("it has ended: %v", ended)
				}
			})
		})
	}
}

func TestAnEraEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		era, end := jobs.Era(ctx, time.Now)
		defer end()
		cancel()
		if era.Err() == nil {
			t.Error("it goes on")
		}
	})
}
