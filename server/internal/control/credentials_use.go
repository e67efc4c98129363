package control

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// access returns how a repository is read, with its current credential.
func (s *Service) access(ctx context.Context, repo fleet.Repository) (gitsource.Access, error) {
	a := gitsource.Access{Owner: string(repo.TenantID), URL: repo.URL, Submodules: repo.Submodules, Signers: repo.Signers}
	if repo.CredentialID == "" {
		return a, nil
	}
	var c fleet.Credential
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		c, err = tx.Credentials().Get(ctx, repo.TenantID, repo.CredentialID)
		return err
	})
	if err != nil {
		return a, fmt.Errorf("reading the credential of %s: %w", repo.URL, err)
	}
	secret, err := s.opened(c)
	if err != nil {
		return a, &sealedError{c.Name, err}
	}
	a.Credential = &gitsource.Credential{Fingerprint: s.fingerprint(c, secret), Username: c.Username}
	if c.Kind == fleet.CredentialSSH {
		a.Credential.SSHKey, a.Credential.KnownHosts = []byte(secret.Reveal()), []byte(c.KnownHosts)
	} else {
		a.Credential.Password = secret.Reveal()
	}
	return a, nil
}

// sealedError means that the secret of a credential cannot be decrypted. Reading it again does not help.
type sealedError struct {
	credential string
	err        error
}

func (e *sealedError) Error() string { return fmt.Sprintf("credential %q: %v", e.credential, e.err) }
func (e *sealedError) Unwrap() error { return e.err }

// fingerprint identifies equal credentials without revealing them: it is keyed, so that guesses cannot be
// checked against it.
func (s *Service) fingerprint(c fleet.Credential, secret seal.Secret) string {
	mac := hmac.New(sha256.New, s.cfg.Key)
	_, _ = fmt.Fprintf(mac, "kedge credential\x00%q %q %q %q", c.Kind, c.Username, c.KnownHosts, secret.Reveal())
	return hex.EncodeToString(mac.Sum(nil))[:32]
}

// resealBatch limits the writes of one transaction.
const resealBatch = 100

// ResealCredentials encrypts every secret that uses an older key with the newest one, and returns their number.
// Secrets that no key decrypts are skipped and are in the error.
func (s *Service) ResealCredentials(ctx context.Context) (int, error) {
	if s.cfg.Sealer == nil {
		return 0, nil
	}
	total, broken := 0, map[fleet.CredentialID]error{}
	for {
		seen, done := 0, 0
		err := s.store.Update(ctx, func(tx store.Tx) error {
			seen, done = 0, 0
			// Secrets that cannot be decrypted are returned every time: read more rows.
			batch, err := tx.Credentials().NotSealedByAllTenants(ctx, s.cfg.Sealer.KeyID(), resealBatch+len(broken))
			if err != nil {
				return err
			}
			for _, c := range batch {
				if broken[c.ID] != nil {
					continue
				}
				sealed, problem, err := s.resealOne(ctx, tx, c)
				if err != nil {
					return err
				}
				if problem != nil {
					broken[c.ID] = problem
				}
				seen++
				if sealed {
					done++
				}
			}
			return nil
		})
		if err != nil {
			return total, fmt.Errorf("encrypting credentials with key %q: %w", s.cfg.Sealer.KeyID(), err)
		}
		total += done
		if seen == 0 {
			return total, joined(broken)
		}
	}
}

// resealOne encrypts one secret again. If it was edited concurrently, it is read again later. problem is an
// error of the secret itself.
func (s *Service) resealOne(ctx context.Context, tx store.Tx, c fleet.Credential) (sealed bool, problem, err error) {
	secret, problem := s.opened(c)
	if problem != nil {
		return false, fmt.Errorf("credential %q: %w", c.Name, problem), nil
	}
	again, err := s.cfg.Sealer.Seal(secret, aboutCredential(c))
	if err != nil {
		return false, nil, err
	}
	sealed, err = tx.Credentials().Reseal(ctx, c, again)
	return sealed, nil, err
}

func joined(problems map[fleet.CredentialID]error) error {
	var err error
	for _, problem := range problems {
		err = errors.Join(err, problem)
	}
	return err
}
