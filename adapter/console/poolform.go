package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// poolForm is a pool as somebody types it, with what is wrong with each field.
type poolForm struct {
	New    bool
	Values url.Values
	Wrong  map[string]string // by field
}

// formTime is how a browser's field writes a time; it is in UTC here.
const formTime = "2006-01-02T15:04"

// Value is what a field holds.
func (f poolForm) Value(field string) string { return f.Values.Get(field) }

func (c *Console) newPool(v *visit) error {
	return v.show(http.StatusOK, "poolform", "New pool", "pools", poolForm{New: true, Values: url.Values{"shortage": {"wait"}}})
}

func (c *Console) createPool(v *visit) error {
	form := poolForm{New: true, Values: v.r.PostForm, Wrong: map[string]string{}}
	pool := form.pool(v.who.Merchant)
	if pool.SKU = strings.TrimSpace(form.Value("sku")); pool.SKU == "" || utf8.RuneCountInString(pool.SKU) > 255 {
		form.Wrong["sku"] = "A SKU has from 1 to 255 characters."
	}
	if len(form.Wrong) == 0 {
		made, err := c.Service.CreatePool(v.ctx, pool, v.person())
		switch {
		case errors.Is(err, inventory.ErrPoolExists):
			form.Wrong["sku"] = "There is a pool of this SKU already."
		case err != nil:
			return err
		default:
			return v.goTo(poolPath(made.SKU) + "&done=created")
		}
	}
	return v.show(http.StatusUnprocessableEntity, "poolform", "New pool", "pools", form)
}

func (c *Console) editPool(v *visit) error {
	pool, err := inventory.PoolBySKU(v.ctx, c.DB, v.who.Merchant, v.r.URL.Query().Get("sku"))
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "poolform", "Change "+pool.Name, "pools", poolForm{Values: valuesOf(pool)})
}

func (c *Console) changePool(v *visit) error {
	old, err := inventory.PoolBySKU(v.ctx, c.DB, v.who.Merchant, v.r.PostFormValue("sku"))
	if err != nil {
		return err
	}
	form := poolForm{Values: v.r.PostForm, Wrong: map[string]string{}}
	pool := form.pool(v.who.Merchant)
	pool.SKU = old.SKU
	if old.ReleaseAt != nil && form.Value("release_at") == old.ReleaseAt.UTC().Format(formTime) {
		pool.ReleaseAt = old.ReleaseAt // the field has no seconds
	}
	if len(form.Wrong) == 0 {
		_, err := c.Service.ChangePool(v.ctx, pool, v.person())
		switch {
		case errors.Is(err, fulfillment.ErrReleased):
			form.Wrong["release_at"] = "Keys of this pool were given out, and their mails go by the date that it had: it stays."
		case err != nil:
			return err
		default:
			return v.goTo(poolPath(pool.SKU) + "&done=changed")
		}
	}
	return v.show(http.StatusUnprocessableEntity, "poolform", "Change "+old.Name, "pools", form)
}

func valuesOf(p inventory.Pool) url.Values {
	values := url.Values{"sku": {p.SKU}, "name": {p.Name}, "shortage": {string(p.Shortage)}}
	for field, n := range map[string]*int64{"pending_supply": p.PendingSupply, "low_keys": p.LowKeys, "max_reserved": p.MaxReserved} {
		if n != nil {
			values.Set(field, strconv.FormatInt(*n, 10))
		}
	}
	if p.LowPercent != nil {
		values.Set("low_percent", strconv.Itoa(*p.LowPercent))
	}
	if p.ReleaseAt != nil {
		values.Set("release_at", p.ReleaseAt.UTC().Format(formTime))
	}
	return values
}

// pool reads the form, and notes what is wrong with it.
func (f *poolForm) pool(merchant string) inventory.Pool {
	p := inventory.Pool{Merchant: merchant, Name: strings.TrimSpace(f.Value("name")), Shortage: inventory.Shortage(f.Value("shortage"))}
	if utf8.RuneCountInString(p.Name) > 500 {
		f.Wrong["name"] = "A name has at most 500 characters."
	}
	if p.Shortage != inventory.Wait && p.Shortage != inventory.Fail {
		f.Wrong["shortage"] = "Choose what a paid unit does without stock."
	}
	p.PendingSupply, p.LowKeys, p.MaxReserved = f.number("pending_supply"), f.number("low_keys"), f.number("max_reserved")
	if n := f.number("low_percent"); n != nil {
		percent := int(min(*n, 1000))
		if p.LowPercent = &percent; percent < 1 || percent > 99 {
			f.Wrong["low_percent"] = "From 1 to 99 percent."
		}
	}
	if text := strings.TrimSpace(f.Value("release_at")); text != "" {
		at, err := time.Parse(formTime, text)
		if err != nil {
			f.Wrong["release_at"] = "A day and a time, as 2027-03-31T18:00."
		}
		p.ReleaseAt = &at
	}
	return p
}

// number reads a whole number that may be left out.
func (f *poolForm) number(field string) *int64 {
	text := strings.TrimSpace(f.Value(field))
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		f.Wrong[field] = "A whole number, from 0; left empty for none."
	}
	return &n
}
