package control

import (
	"github.com/kedge-dev/kedge/server/internal/imageupdate"
	"github.com/kedge-dev/kedge/server/internal/polling"
	"github.com/kedge-dev/kedge/server/internal/rollout"
)

// The types in which agents are told what to have and report what they have; see package rollout.
type (
	// Application is one target of an agent that polls; see package polling.
	Application = polling.Application

	AgentTarget  = rollout.AgentTarget
	AgentReports = rollout.AgentReports
	AgentEvent   = rollout.AgentEvent
)

// The types in which images are set; see package imageupdate.
type (
	SetImages   = imageupdate.SetImages
	ImageUpdate = imageupdate.ImageUpdate
)
