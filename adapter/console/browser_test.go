package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/smtptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// Of a whole test and of a step of it, on a machine that does much else.
const (
	browserTimeout = 6 * time.Minute
	stepTimeout    = 20 * time.Second
)

// chromium starts a browser of its own, with a fresh profile.
func chromium(t *testing.T) context.Context {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Fatal("there is no Chromium, in which this test looks at the console: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	t.Cleanup(cancel)
	ctx, cancelBrowser := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancelBrowser)
	ctx, cancelTab := chromedp.NewContext(ctx)
	t.Cleanup(cancelTab)
	// A question before what cannot be undone is answered with yes.
	questions := chromedp.Events(ctx, page.JavascriptDialogOpening)
	go func() {
		for _, err := range questions {
			if err != nil {
				return // the browser has ended
			}
			_, _ = chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}
	}()
	return ctx
}

// A person sits before a browser.
type person struct {
	*shop
	ctx context.Context
}

func (p person) does(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("%v; the page was:\n%s", err, p.text())
	}
}

// text is what the page shows.
func (p person) text() string {
	p.t.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.querySelector("main").innerText`))
	if err != nil {
		p.t.Fatalf("read the page: %v", err)
	}
	return text
}

func (p person) opens(path string) {
	p.t.Helper()
	p.does(chromedp.Navigate(p.url+path), chromedp.WaitReady("main"))
}

// sends clicks a button, waits for the page that comes of it, and returns its text.
func (p person) sends(button string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	resp, err := chromedp.RunResponse(ctx, chromedp.Click(button))
	if err != nil {
		p.t.Fatalf("click %s: %v; the page was:\n%s", button, err, p.text())
	}
	if resp != nil && resp.Status >= 400 {
		p.t.Errorf("click %s: %d", button, resp.Status)
	}
	p.does(chromedp.WaitReady("main"))
	return p.text()
}

// sendsInVain clicks a button of a form that has something wrong, and returns the text of the page that says so.
func (p person) sendsInVain(button string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	resp, err := chromedp.RunResponse(ctx, chromedp.Click(button))
	p.must(err)
	if resp == nil || resp.Status != http.StatusUnprocessableEntity {
		p.t.Errorf("click %s: %+v", button, resp)
	}
	p.does(chromedp.WaitReady("main"))
	return p.text()
}

func (p person) sees(text string, wanted ...string) {
	p.t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			p.t.Errorf("the page does not show %q:\n%s", w, text)
		}
	}
}

func (p person) logsIn(role access.Role) {
	p.t.Helper()
	p.opens("/console/login")
	p.does(chromedp.SendKeys("#token", p.tokens[role]))
	p.sees(p.sends("main button"), "Overview")
}

// openShop is a shop that delivers, with orders of every kind.
func openShop(t *testing.T) *shop {
	t.Helper()
	mails := smtptest.Start()
	t.Cleanup(mails.Close)
	s := newShop(t, func(c *adapter.Config) {
		c.Mail = adapter.Mail{URL: "smtp://" + mails.Addr(), From: "Shop <shop@example.com>"}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.shop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return s
}

func TestAPersonDoesADaysWorkInABrowser(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	s.stock("game", "The Game", "GAME-ONE", "GAME-TWO", "GAME-THREE", "GAME-FOUR")
	s.stock("card", "Gift card 50", "CARD-ONE")
	order := s.sell("cs_1", "buyer@example.com", "price_game*2@500#li_1 price_card*1@500#li_2")
	s.must(s.stripe.Refund("re_1", order.PaymentIntent, stripefake.Fields{"amount": "300"}))
	_, err := s.shop.Settle(t.Context(), "cs_1")
	s.must(err)

	p := person{s, chromium(t)}
	p.logsIn(access.Admin)

	file := filepath.Join(t.TempDir(), "more.txt")
	s.must(os.WriteFile(file, []byte("GAME-FIVE\nGAME-SIX\nGAME-SIX\nGAME-ONE\n"), 0o600))
	p.opens("/console/pool?sku=game")
	p.does(chromedp.Click("#import summary"), chromedp.SetUploadFiles("#file", []string{file}))
	p.sees(p.sends("#import button.main"), "Nothing was imported yet", "Import 2 keys", "the same key as row 2")
	p.sees(p.sends("main button.main"), "Imported.", "more.txt")

	p.does(chromedp.SendKeys("#find", order.Charge))
	p.sees(p.sends(".find button"), "cs_1", "Part refunded", "Refund for an unknown part", "key #")

	p.does(chromedp.SendKeys("#reveal-reason", "the buyer lost the mail"))
	p.sees(p.sends("form[action$='/reveal'] button"), "GAME-ONE", "GAME-TWO", "CARD-ONE", "Keys revealed", "the buyer lost the mail")

	p.opens("/console/orders/cs_1")
	p.does(chromedp.SendKeys("#to", "new@example.com"), chromedp.SendKeys("#resend-reason", "moved"))
	p.sees(p.sends("form[action$='/resend'] button"), "On its way", "Keys sent again", "new@example.com")

	p.does(chromedp.Click("input[name=unit]"), chromedp.SendKeys("#unit-reason", "used already"))
	p.sees(p.sends("button[formaction$='/replace']"), "Replaced.", "Key replaced", "used already", "was taken back")

	p.does(chromedp.SetValue("[name='units.li_1']", "1"))
	p.sees(p.sends("form[action$='/attribute'] button.main"), "Noted, and settled", "Refund attributed", "li_1:1", "by payment")

	p.opens("/console/audit")
	p.sees(p.text(), "Keys imported", "Keys revealed", "Keys sent again", "Key replaced", "Refund attributed", "test-admin")
	p.sees(p.sends(".who button"), "Log in to keytill")
}

// picturesEnv names a folder that keeps the pictures, for a person to look at.
const picturesEnv = "KEYTILL_TEST_PICTURES"

func TestEveryPageFitsPhonesAndDesktopsInLightAndDark(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	fillShop(s)
	folder := os.Getenv(picturesEnv)
	if folder == "" {
		folder = t.TempDir()
	}
	p := person{s, chromium(t)}
	pages := []struct{ name, path string }{{"login", "/console/login"}}
	p.picture(folder, pages[0].name, pages[0].path)
	p.logsIn(access.Admin)
	admin := s.as(access.Admin)
	staged := admin.upload("december.txt", "NEW-1\nNEW-2\nNEW-2\n\n GAME-0\n", "sku", "game", "supplier", "Wholesale Ltd").to()
	pages = []struct{ name, path string }{
		{"overview", "/console"}, {"orders", "/console/orders"}, {"order", "/console/orders/cs_refund"}, {"order-plain", "/console/orders/cs_1"},
		{"pools", "/console/pools"}, {"pool", "/console/pool?sku=game"}, {"import", staged}, {"batch", "/console/batch?sku=game&id=" + s.batch()},
		{"orders-waiting", "/console/orders?waiting=1"}, {"order-large", "/console/orders/cs_large?from=1.151"}, {"pool-new", "/console/pools/new"},
		{"pool-edit", "/console/pool/edit?sku=game"}, {"batch-recalled", "/console/batch?sku=card&id=2"}, {"orders-none", "/console/orders?payment=lost"},
		{"findings", "/console/findings"}, {"audit", "/console/audit"}, {"problem", "/console/nothing"},
	}
	for _, page := range pages {
		p.picture(folder, page.name, page.path)
	}
	p.opens("/console/orders/cs_refund")
	p.tabsThrough(25)
	// A form that is sent with errors shows them at their fields.
	p.opens("/console/pools/new")
	p.does(chromedp.SendKeys("#low_percent", "200"))
	p.sees(p.sendsInVain("main button.main"), "look at the marked fields", "From 1 to 99 percent.", "A SKU has from 1 to 255 characters.")
	p.looks(folder, "pool-wrong")
}

func (s *shop) batch() (id string) {
	s.t.Helper()
	s.must(s.db.QueryRow(s.t.Context(), `SELECT min(batch_id)::text FROM keytill.batches`).Scan(&id))
	return id
}

// picture looks at a page, freshly opened.
func (p person) picture(folder, name, path string) {
	p.t.Helper()
	p.opens(path)
	p.looks(folder, name)
}

// looks looks at the page that is open at both widths and in both colour schemes: nothing may be wider than the window,
// cut off within its box, or hard to use.
func (p person) looks(folder, name string) {
	p.t.Helper()
	for _, width := range []int64{390, 1440} {
		height := int64(844)
		if width > 1000 {
			height = 900
		}
		p.does(chromedp.EmulateViewport(width, height))
		for _, scheme := range []string{"light", "dark"} {
			media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
			_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, media)
			p.must(err)
			wide, err := chromedp.Run(p.ctx, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`))
			p.must(err)
			png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
			p.must(err)
			if wide > width {
				p.t.Errorf("%s is %d pixels wide in a window of %d", name, wide, width)
			}
			p.accessible(fmt.Sprintf("%s, %d pixels, %s", name, width, scheme))
			p.must(os.WriteFile(filepath.Join(folder, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), png, 0o600))
		}
	}
}

// fillShop makes what the pages show.
func fillShop(s *shop) {
	s.t.Helper()
	var keys []string
	for i := range 60 {
		keys = append(keys, fmt.Sprintf("GAME-%d", i))
	}
	s.stock("game", "Starfarer: Ultimate Edition", keys...)
	s.stock("card", "Gift card 50 EUR", "CARD-1", "CARD-2", "CARD-3", "CARD-4")
	s.stock("vpn", "VPN, one year", keys[:20]...)
	s.stock("empty", "Season pass")
	for i := range 14 {
		s.sell(fmt.Sprintf("cs_%d", i+1), fmt.Sprintf("buyer%d@example.com", i), "price_game*2@1999")
	}
	s.sell("cs_card", "anna@example.com", "price_card*3@5000")
	s.sell("cs_wait", "ben@example.com", "price_empty*1@2999")
	s.sell("cs_unknown", "eve@example.com", "price_elsewhere*1@700 price_vpn*1@3900")
	order := s.sell("cs_refund", "chris.longer-name@example.com", "price_game*2@1999#li_game price_vpn*1@3900#li_vpn")
	s.must(s.stripe.Refund("re_1", order.PaymentIntent, stripefake.Fields{"amount": "777"}))
	_, err := s.shop.Settle(s.t.Context(), "cs_refund")
	s.must(err)
	b := s.as(access.Support)
	b.post("/console/orders/cs_refund/resend", url.Values{"to": {"chris@example.com"}, "reason": {"the address had a typo"}}).to()
	b.post("/console/orders/cs_refund/replace", url.Values{"unit": {ref(order, 0, 1)}, "reason": {"“already used”, says the buyer"}}).to()
	s.stock("pack", "Class room licences", manyKeys(230)...)
	s.sell("cs_large", "school@example.com", "price_pack*230@900#li_pack price_vpn*3@3900#li_vpn3")
	s.as(access.Admin).post("/console/batch", url.Values{"sku": {"card"}, "id": {"2"}, "state": {"recalled"}, "reason": {"the supplier sold them twice"}}).to()
	for i, sku := range []string{"game", "vpn", "card", "empty"} {
		_, err := s.shop.Service().Reserve(s.t.Context(), inventory.DefaultMerchant, fulfillment.Reservation{Ref: fmt.Sprintf("cart_%d", i),
			Lines: []fulfillment.ReservationLine{{SKU: sku, Quantity: 1}}})
		if err != nil && !errors.Is(err, fulfillment.ErrSoldOut) {
			s.t.Fatal(err)
		}
	}
}
