package outage_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pgtest"
)

const firstKeys = 1500

// A daemon that is killed again and again in the midst of its work, and followed by another at once.
func TestKilledDaemonsLoseNothing(t *testing.T) {
	t.Parallel()
	kills := length(6, 100)
	s := open(t, pgtest.NewURL(t), firstKeys)
	c := s.gather(firstKeys, 1)
	d := s.serve(s.url)
	c.visit(d)
	for kill := range kills {
		c.work(10+c.intN(40), judgePatience)
		d.kill(t)
		c.visit()
		died := time.Now()
		c.hold(time.Minute)
		s.minutesPass()
		d = s.serve(s.url)
		c.visit(d)
		// Not only at the end: the next daemon takes up what this one left.
		c.complete(judgePatience, c.toldBefore(died))
		if t.Failed() {
			t.Fatalf("after kill %d of %d", kill+1, kills)
		}
	}
	c.goHome()
	d.kill(t)
	c.judge(s.url, kills+1)
}

// Two daemons work on one database, and the other goes on when one is killed.
func TestTwoDaemonsWithKillsLoseNothing(t *testing.T) {
	t.Parallel()
	kills := length(4, 100)
	s := open(t, pgtest.NewURL(t), firstKeys)
	c := s.gather(firstKeys, 2)
	random := rand.New(rand.NewPCG(2, 2))
	pair := [2]*daemon{s.serve(s.url), s.serve(s.url)}
	c.visit(pair[:]...)
	for kill := range kills {
		c.work(5+random.IntN(40), judgePatience)
		victim := random.IntN(2)
		if random.IntN(4) == 0 { // both at once
			pair[1-victim].kill(t)
			pair[victim].kill(t)
			c.visit()
			pair[1-victim] = s.serve(s.url)
		} else {
			pair[victim].kill(t)
			c.visit(pair[1-victim])
			c.work(5, judgePatience) // the other one is not held up
		}
		c.hold(time.Minute)
		pair[victim] = s.serve(s.url)
		c.visit(pair[:]...)
		if t.Failed() {
			t.Fatalf("after kill %d of %d", kill+1, kills)
		}
	}
	c.goHome()
	pair[0].kill(t)
	pair[1].kill(t)
	c.judge(s.url, kills+2)
}
