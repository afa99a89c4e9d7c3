package hook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const secretPrefix = "whsec_"

// newSigners reads the secrets. The library takes any base64, and so most passwords of letters; this does not, since
// a short secret that a person made up is guessed from one notice.
func newSigners(secrets []string) ([]*standardwebhooks.Webhook, error) {
	if len(secrets) == 0 {
		return nil, errors.New("hook: no secret: make one with " + howToMakeOne)
	}
	var signers []*standardwebhooks.Webhook
	for i, secret := range secrets {
		encoded, ok := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		// 24 to 64 bytes: the Standard Webhooks specification, "Signature scheme".
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("hook: secret %d is not whsec_ and the base64 of 24 to 64 random bytes: make one with %s",
				i+1, howToMakeOne)
		}
		signer, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, fmt.Errorf("hook: secret %d cannot be used: make one with %s", i+1, howToMakeOne)
		}
		signers = append(signers, signer)
	}
	return signers, nil
}

const howToMakeOne = `echo "whsec_$(openssl rand -base64 32)" and give it to the receiver too`

// sign sets the three headers. The timestamp is the sending's, not the notice's: receivers refuse old ones.
func (s *Sender) sign(header http.Header, id string, body []byte) error {
	now := s.now()
	var signatures []string
	for _, signer := range s.signers {
		signature, err := signer.Sign(id, now, body)
		if err != nil {
			return err
		}
		signatures = append(signatures, signature)
	}
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}
