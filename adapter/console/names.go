package console

import (
	"cmp"
	"strings"

	"github.com/keytill/keytill/fulfillment"
)

// What people read in place of the words of the schema. A word that is not here is shown as it is.

func paymentWords(p fulfillment.PaymentState) string {
	return cmp.Or(map[fulfillment.PaymentState]string{
		fulfillment.Pending: "Not paid yet", fulfillment.Paid: "Paid", fulfillment.PartRefunded: "Part refunded", fulfillment.Refunded: "Refunded",
		fulfillment.Disputed: "Disputed", fulfillment.Lost: "Dispute lost", fulfillment.Closed: "Closed unpaid",
	}[p], string(p))
}

func unitWords(u fulfillment.UnitState) string {
	return cmp.Or(map[fulfillment.UnitState]string{
		fulfillment.UnitPending: "not paid yet", fulfillment.UnitWaiting: "waits for stock", fulfillment.UnitFulfilled: "has its key",
		fulfillment.UnitSuspended: "suspended", fulfillment.UnitRevoked: "taken back", fulfillment.UnitFailed: "failed",
	}[u], string(u))
}

// tallyWords follow a number of units.
func tallyWords(u fulfillment.UnitState) string {
	return cmp.Or(map[fulfillment.UnitState]string{
		fulfillment.UnitPending: "unpaid", fulfillment.UnitWaiting: "waiting", fulfillment.UnitFulfilled: "delivered",
	}[u], unitWords(u))
}

func noticeWords(n fulfillment.NoticeType) string {
	return cmp.Or(map[fulfillment.NoticeType]string{
		fulfillment.KeysReady: "the keys", fulfillment.FulfillmentCompleted: "order complete", fulfillment.FulfillmentWaiting: "units wait",
		fulfillment.FulfillmentFailed: "units failed", fulfillment.KeySuspended: "key suspended", fulfillment.KeyRevoked: "key taken back",
		fulfillment.KeyRestored: "key valid again", fulfillment.KeyReplaced: "key replaced", fulfillment.FindingOpened: "a finding",
	}[n], string(n))
}

func channelWords(c fulfillment.Channel) string {
	return cmp.Or(map[fulfillment.Channel]string{fulfillment.ChannelEmail: "e-mail", fulfillment.ChannelHook: "hook to the storefront",
		fulfillment.ChannelProcess: "the storefront's process"}[c], string(c))
}

func actWords(action string) string {
	words := cmp.Or(map[string]string{
		"reveal": "Keys revealed", "resend": "Keys sent again", "replace": "Key replaced", "revoke": "Key revoked", "retry": "Tried again",
		"attribute refund": "Refund attributed", "import": "Keys imported", "quarantine": "Batch quarantined", "release": "Batch released",
		"recall": "Batch recalled", "create pool": "Pool made", "change pool": "Pool changed", "send again": "Notice sent again", "end links": "Links to the buyer's page ended", "link": "Link to the buyer's page made",
		"log in": "Logged in", "map": "Price mapped", "sweep": "Sweep started", "rebuild stock": "Counts rebuilt", "rotate keyset": "Keyset rotated",
	}[action], action)
	return strings.ToUpper(words[:min(1, len(words))]) + words[min(1, len(words)):]
}

// findings are what each kind means for a person, and what they can do about it.
var findings = map[fulfillment.FindingKind]struct{ title, advice string }{
	fulfillment.UnknownPrice: {"Price without a pool", "Somebody bought a price that no pool belongs to. Say which pool it sells from, " +
		"or that no keys belong to it: every order that waits for this is settled then."},
	fulfillment.UnattributedRefund: {"Refund for an unknown part", "Part of the money went back and it is not clear for which keys, so none was taken. " +
		"Open the order and say which units the refund is for, or that it is for none."},
	fulfillment.AmountMismatch: {"Less was captured than the total", "Nothing was handed out. Capture the rest at Stripe, or refund what was captured."},
	fulfillment.Inquiry: {"The bank asks about a payment", "Nothing was taken yet. Answer the inquiry at Stripe: if it becomes a dispute, the keys are " +
		"suspended by themselves."},
	fulfillment.FraudWarning:   {"Early fraud warning", "Look at the order. If it is fraud, refund it at Stripe: the keys are taken back then."},
	fulfillment.UnknownStatus:  {"Stripe says a word that is not known", "Nothing was taken. Look at the payment at Stripe, and update keytill."},
	fulfillment.UnknownAccount: {"Events of an unknown account", "Add the connected account with `keytill merchant add`, or stop its events at Stripe."},
	fulfillment.NoRecipient:    {"No address to send keys to", "Open the order and send its keys to an address that you know to be the buyer's."},
	fulfillment.Shortage: {"Paid, and out of stock", "The pool does not wait for stock, so the unit failed. Import keys and retry the order, or refund it " +
		"at Stripe."},
	fulfillment.Undeliverable: {"A delivery was given up", "Open the order: correct the address and send again, or look at the storefront's hook endpoint."},
	fulfillment.Silence:       {"No event comes from Stripe", "Look at the webhook endpoint in the Stripe dashboard; `keytill doctor` says what is wrong with it."},
}

func findingTitle(k fulfillment.FindingKind) string { return cmp.Or(findings[k].title, string(k)) }

func findingAdvice(k fulfillment.FindingKind) string { return findings[k].advice }

// plainly is a finding's detail without the commands that it names: here, a form beside it does what they do.
func plainly(detail string) string {
	before, _, names := strings.Cut(detail, "`keytill ")
	if !names {
		return detail
	}
	return strings.TrimRight(before, " ,;:")
}
