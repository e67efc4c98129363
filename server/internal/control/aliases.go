package control

import (
	"github.com/kedge-dev/kedge/server/internal/imageupdate"
	"github.com/kedge-dev/kedge/server/internal/polling"
	"github.com/kedge-dev/kedge/server/internal/rollout"
)

type (
	// Application is one target of an agent that polls; see package polling.
	Application = polling.Application

	// AgentTarget is a target in the form for its agent; see package rollout.
	AgentTarget = rollout.AgentTarget
	// AgentReports are the reports of one agent; see package rollout.
	AgentReports = rollout.AgentReports
	// AgentEvent is an event that an agent reports; see package rollout.
	AgentEvent = rollout.AgentEvent
)

type (
	// SetImages is the request for new images of a deployment; see package imageupdate.
	SetImages = imageupdate.SetImages
	// ImageUpdate is the result of SetImages; see package imageupdate.
	ImageUpdate = imageupdate.ImageUpdate
)
