package kubeapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Config configures a Server. Zero fields have defaults.
type Config struct {
	// Cluster is how the API server that holds the resources is reached.
	Cluster *rest.Config
	// Workers is the number of resources of one kind that are processed at the same time; default 8.
	Workers int
	Log     *slog.Logger
}

// Control has the use cases that custom resources need.
type Control interface {
	tenantControl
	deploymentControl
	environmentControl
	credentialControl
	runControl
	ownerControl
	// FollowChanges calls fn with every batch of changes of all tenants until ctx ends.
	FollowChanges(ctx context.Context, fn func([]store.Change)) error
	// Lead calls run while this replica is the one for name.
	Lead(ctx context.Context, name string, run func(ctx context.Context))
}

// Server serves custom resources.
type Server struct {
	cfg     Config
	control Control
	scheme  *runtime.Scheme
}

// libraryLogSet sets the log of controller-runtime, which has one for the whole process and may not be set concurrently.
var libraryLogSet sync.Once

// New returns a Server; it does no I/O.
func New(cfg Config, c Control) (*Server, error) {
	cfg.Workers = cmp.Or(cfg.Workers, 8)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return nil, err
	}
	libraryLogSet.Do(func() { log.SetLogger(libraryLog(cfg.Log)) })
	cluster := rest.CopyConfig(cfg.Cluster)
	// The API server has its own limits (API priority and fairness).
	cluster.QPS = -1
	cfg.Cluster = cluster
	return &Server{cfg: cfg, control: c, scheme: s}, nil
}

// Run serves until ctx ends. One replica serves at a time.
func (s *Server) Run(ctx context.Context) error {
	s.control.Lead(ctx, "kubernetes", func(ctx context.Context) {
		if err := s.lead(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("serving Kubernetes resources, starting again", obs.Err(err))
		}
	})
	return nil
}

// lead serves while this replica leads. It returns an error when everything has to be read again.
func (s *Server) lead(ctx context.Context) error {
	s.cfg.Log.Info("processing custom resources")
	m, err := s.newManager()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	controllers, err := newControllers(ctx, s, m)
	if err != nil {
		return err
	}
	g.Go(func() error { return m.Start(ctx) })
	for _, kind := range append([]string{kindNamespace}, kinds...) {
		g.Go(func() error { return controllers.reportMissing(ctx, kind) })
	}
	g.Go(func() error { return controllers.reportNamespaces(ctx) })
	g.Go(func() error { return s.follow(ctx, controllers) })
	return g.Wait()
}

// follow processes resources again that changes of the server concern. It follows again from the start if it fails, so no
// change is lost. It returns an error if the database went back: then nothing that the controllers know about it counts.
func (s *Server) follow(ctx context.Context, cs *controllers) error {
	for {
		err := s.control.FollowChanges(ctx, cs.changed)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, control.ErrRewound) {
			return err
		}
		s.cfg.Log.Warn("following the changes of the server, trying again", obs.Err(err))
		wait.For(ctx, missingRetry)
	}
}

func (s *Server) newManager() (manager.Manager, error) {
	return manager.New(s.cfg.Cluster, manager.Options{
		Scheme: s.scheme, Logger: libraryLog(s.cfg.Log),
		// The kinds are known. Discovery would cost requests and fail while a definition is missing.
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return newMapper(), nil },
		Metrics:        server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		// Secrets, namespaces and definitions are read directly: a cache would hold those of the whole cluster. Resources have
		// their own caches.
		NewClient:  func(c *rest.Config, o client.Options) (client.Client, error) { o.Cache = nil; return client.New(c, o) },
		Controller: config.Controller{SkipNameValidation: new(true), CacheSyncTimeout: cacheTimeout},
	})
}

// cacheTimeout is the time limit for the start of a controller, which is without effect: a missing definition may be
// created at any time.
const cacheTimeout = 1 << 62

func newMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion, corev1.SchemeGroupVersion})
	for kind, resource := range map[string]string{
		v1alpha1.KindGitOpsDeployment: "gitopsdeployments", v1alpha1.KindManagedEnvironment: "managedenvironments",
		v1alpha1.KindRepositoryCredential: "repositorycredentials", v1alpha1.KindSyncRun: "syncruns",
	} {
		gv := v1alpha1.GroupVersion
		m.AddSpecific(gv.WithKind(kind), gv.WithResource(resource), gv.WithResource(strings.ToLower(kind)), meta.RESTScopeNamespace)
	}
	m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(definitionKind, meta.RESTScopeRoot)
	return m
}

// libraryLog returns the log of controller-runtime. Its informational messages are about its own parts.
func libraryLog(l *slog.Logger) logr.Logger { return logr.FromSlogHandler(warnings{l.Handler()}) }

// warnings drops messages below the level of a warning.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
