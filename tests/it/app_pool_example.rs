//! The example `app_pool`, started as a newcomer starts it.

use reqwest::Client;

use crate::support::Server;

impl Server {
    async fn write_note(&self) -> u16 {
        let request = Client::new().post(format!("{}/notes", self.url));
        request
            .body("buy milk")
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    }

    async fn count_of_notes(&self) -> String {
        let response = reqwest::get(format!("{}/notes", self.url)).await.unwrap();
        response.text().await.unwrap()
    }
}

#[tokio::test]
async fn notes_and_their_limit_are_in_one_file_and_survive_a_restart() {
    let mut server = Server::start("app_pool");
    for _ in 0..3 {
        assert_eq!(server.write_note().await, 201);
    }
    assert_eq!(server.write_note().await, 429);
    server.restart();
    assert_eq!(server.write_note().await, 429);
    assert_eq!(server.count_of_notes().await, "3 notes\n");
}
