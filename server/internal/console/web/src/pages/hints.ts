// The commands that empty pages show as the next step.

export const ENROLL_AGENT = "kedge agent enroll NAME --image IMAGE | kubectl apply -f -";
export const CREATE_DEPLOYMENT = "kedge deploy create NAME --repo https://git.example.com/team/app.git --path deploy";
