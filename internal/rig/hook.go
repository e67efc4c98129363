package rig

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
)

// SendHook sends the signed webhook of a Git host about a moved ref, and returns the HTTP status.
func SendHook(ctx context.Context, client *http.Client, url, secret, ref string) (int, error) {
	body, err := json.Marshal(map[string]string{"ref": ref})
	if err != nil {
		return 0, err
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Kedge-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	res, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("sending the webhook: %w", err)
	}
	return res.StatusCode, res.Body.Close()
}
