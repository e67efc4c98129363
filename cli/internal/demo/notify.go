package demo

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// Notify sends a signed webhook for a ref: what a Git host does after a push. The repository of the
// demo calls it from its hook.
func Notify(ctx context.Context, url, secretFile, ref string) error {
	secret, err := os.ReadFile(secretFile)
	if err != nil {
		return fmt.Errorf("reading the webhook's secret: %w", err)
	}
	body, err := json.Marshal(map[string]string{"ref": ref})
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, []byte(strings.TrimSpace(string(secret))))
	mac.Write(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Kedge-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	res, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return fmt.Errorf("sending the webhook: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("sending the webhook: the server answered %s", res.Status)
	}
	return nil
}
