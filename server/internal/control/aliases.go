package control

import (
	"github.com/kedge-dev/kedge/server/internal/imageupdate"
	"github.com/kedge-dev/kedge/server/internal/polling"
	"github.com/kedge-dev/kedge/server/internal/rollout"
)

type (
	// Application is one target of an agent that polls; see package polling.
	Application = polling.Application

	// AgentTarget is a target as its agent gets it; see package rollout.
	AgentTarget = rollout.AgentTarget
	// AgentReports is what one agent reported; see package rollout.
	AgentReports = rollout.AgentReports
	// AgentEvent is an event that an agent reports; see package rollout.
	AgentEvent = rollout.AgentEvent
)

type (
	// SetImages asks for new images of a deployment; see package imageupdate.
	SetImages = imageupdate.SetImages
	// ImageUpdate is what came of SetImages; see package imageupdate.
	ImageUpdate = imageupdate.ImageUpdate
)
