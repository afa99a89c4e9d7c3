package demo

import (
	"fmt"
	"time"

	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

// unheardFor is how long a payment is older than the sweep's grace, so that it is no longer the webhook's alone.
const unheardFor = 2 * reconcile.DefaultGrace

// sweep lets somebody buy of whom no webhook ever tells and who asks for nothing, and then sweeps.
func (s *story) sweep() (string, error) {
	if _, _, err := s.importKeys("more.txt", s.keys.make(1)); err != nil {
		return "", err
	}
	p, err := s.buy(s.Orders+2, 1)
	if err != nil {
		return "", err
	}
	if err := s.lose(p); err != nil {
		return "", err
	}
	if err := s.sleep(s.ctx, unheardFor); err != nil {
		return "", err
	}
	began := time.Now()
	report, err := s.shop.Sweep(s.ctx, inventory.DefaultMerchant, reconcile.Options{})
	if err != nil {
		return "", err
	}
	if err := s.settled(); err != nil {
		return "", err
	}
	return fmt.Sprintf("A webhook nobody asks about: a sweep of %d ms finds %s", time.Since(began).Milliseconds(),
		plural(report.Repaired, "sale")), nil
}
