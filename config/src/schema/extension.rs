//! Keys of the extensions.

use super::client::{check_header, file_or_text};
use super::fields::{FieldVisitor, KeyGroup};
use crate::diagnostics::ConfigProblem;
use crate::model::*;

impl KeyGroup for FileStorage {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("directory", &mut self.directory);
        // In the Collector, zero means "no limit".
        let mut max_size = self.max_size.unwrap_or_default();
        fields.value_or_zero("max_size", &mut max_size);
        self.max_size = (max_size > 0).then_some(max_size);
        fields.value("fsync", &mut self.fsync);
        fields.value("create_directory", &mut self.create_directory);
        fields.value("directory_permissions", &mut self.directory_permissions);
    }
}

impl KeyGroup for BearerTokenAuth {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("header", &mut self.header);
        fields.value("scheme", &mut self.scheme);
        credential(fields, ["filename", "token"], &mut self.token, "a token");
        let text = match &self.token {
            Credential::Text(token) => token.reveal(),
            Credential::File(_) => "",
        };
        if let Err(reason) = check_header(&self.header, text) {
            fields.error("header", ConfigProblem::Contradiction(reason));
        }
    }
}

impl KeyGroup for BasicAuth {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.group("client_auth", &mut ClientAuth(self));
        if !fields.is_given("client_auth") {
            let allowed = "the name and the password of a user".to_owned();
            fields.error("client_auth", ConfigProblem::Missing { allowed });
        }
    }
}

struct ClientAuth<'a>(&'a mut BasicAuth);

impl KeyGroup for ClientAuth<'_> {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        credential(fields, ["username_file", "username"], &mut self.0.username, "a user's name");
        credential(fields, ["password_file", "password"], &mut self.0.password, "a password");
        if let Credential::Text(name) = &self.0.username
            && name.reveal().contains(':')
        {
            let reason = "a user name must not contain a colon (RFC 7617)".to_owned();
            fields.error("username", ConfigProblem::Contradiction(reason));
        }
    }
}

/// A secret from a file or inline.
fn credential(fields: &mut FieldVisitor<'_>, keys: [&'static str; 2], slot: &mut Credential, what: &str) {
    let (file, text) = match slot {
        Credential::File(path) => (Some(path.clone()), None),
        Credential::Text(text) => (None, Some(text.clone())),
    };
    let is_given = keys.iter().any(|key| fields.is_given(key));
    let (file, text) = file_or_text(fields, keys, file, text);
    match file.map(Credential::File).or(text.map(Credential::Text)) {
        Some(credential) => *slot = credential,
        None if is_given => {}
        None => {
            let allowed = format!("{what}, here or in a file as {}", keys[0]);
            fields.error(keys[1], ConfigProblem::Missing { allowed });
        }
    }
}

impl KeyGroup for HealthCheck {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("endpoint", &mut self.endpoint);
        fields.value("path", &mut self.path);
        if !self.path.starts_with('/') {
            fields.error("path", ConfigProblem::Contradiction("must begin with a slash".to_owned()));
        }
        fields.optional_group("response_body", &mut self.response_body);
    }
}

impl KeyGroup for ResponseBody {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("healthy", &mut self.healthy);
        fields.value("unhealthy", &mut self.unhealthy);
    }
}

impl KeyGroup for Zpages {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("endpoint", &mut self.endpoint);
    }
}
