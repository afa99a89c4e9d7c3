// Package adapter is the plug-in that a storefront mounts on its router: it puts keytill's parts together.
//
//	shop, err := adapter.New(ctx, adapter.Config{Pool: pool, Stripe: …, Keyset: …})
//	shop.Mount(router)              // POST /webhooks/stripe, GET /healthz, GET /readyz
//	err = shop.Run(ctx)             // workers and periodic work, until ctx ends
//	order, err := shop.Settle(ctx, "cs_…")
//
//	Stripe ──▶ webhooks ──▶ job ──▶ fulfillment.Settle ──▶ inventory
//	                                      │
//	                  e-mail, signed hooks, in-process hook
package adapter
