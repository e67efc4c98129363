package helm

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// A chart is volatile if and only if its result changes with time.
func TestVolatileIsWhatDiffers(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		"now", "ago 0", `date "2006-01-02" now`, `date "2006-01-02" "2020-01-01"`, `date "2006" nil`, `date "2006" 1.5`,
		`dateInZone "2006-01-02" "" "UTC"`, `date_in_zone "2006-01-02" "" "UTC"`, `htmlDate ""`, `htmlDateInZone "" "UTC"`,
		`now | dateModify "1h"`, "now | unixEpoch", `toDate "2006" "2020" | durationRound`, `mustToDate "2006" "2020" | durationRound`,
		"randAlphaNum 20", "randAlpha 20", "randAscii 20 | b64enc", "randNumeric 20", "randBytes 20", "randInt 0 1000000000000",
		`shuffle "abcdefghijklmnopqrstuvwxyz"`, "uuidv4", `bcrypt "x"`, `htpasswd "u" "p"`, `encryptAES "key" "text"`,
		`genPrivateKey "ed25519"`, `(genCA "x" 1).Cert`, `(genCAWithKey "x" 1 .Values.key).Cert`,
		`(genSelfSignedCert "x" nil nil 1).Cert`, `(genSelfSignedCertWithKey "x" nil nil 1 .Values.key).Cert`,
		`(genSignedCert "x" nil nil 1 (genCA "x" 1)).Cert`, `(genSignedCertWithKey "x" nil nil 1 (genCAWithKey "x" 1 .Values.key) .Values.key).Cert`,

		`toDate "2006-01-02" "2020-01-01"`, `toDate "2006" "2020" | dateModify "1h"`, `toDate "2006" "2020" | unixEpoch`,
		`duration "95"`, `derivePassword 1 "long" "p" "u" "example.com"`,
		`sha256sum "x"`, `adler32sum "x"`, `lookup "v1" "Secret" "a" "b"`, `getHostByName "example.com"`,
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				files := chartOf(map[string]string{
					"templates/a.yaml": object("a") + "data:\n  x: {{ " + expression + " | toString | quote }}\n",
					"values.yaml":      fmt.Sprintf("key: %q\n", somePrivateKey(t)),
				})
				first, _, err := build(t, files, fleet.Helm{})
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(400 * 24 * time.Hour)
				second, _, err := build(t, files, fleet.Helm{})
				if err != nil {
					t.Fatal(err)
				}
				if differs := first.Objects[0].Hash() != second.Objects[0].Hash(); differs != first.Volatile {
					t.Errorf("the result changes: %t, volatile: %t", differs, first.Volatile)
				}
			})
		})
	}
}

func somePrivateKey(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
